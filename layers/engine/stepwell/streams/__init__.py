"""Streams: stateful steps that signals wake, one at a time, in their order."""

from __future__ import annotations

from stepwell.streams.deciding import StreamStepContext
from stepwell.streams.declare import StreamStep, StreamWorkflow, stream_step, stream_workflow
from stepwell.streams.emitting import emit, schedule_signal
from stepwell.streams.lifecycle import (
    acknowledge_inbox_signal,
    get_checkpoint,
    get_current_signal,
    poll_inbox,
    save_checkpoint,
    set_result,
    suspend,
    terminate,
)
from stepwell.streams.result import StreamWorkflowResult
from stepwell.streams.running import run_stream_workflow
from stepwell.streams.signals import Signal

__all__ = [
    "Signal",
    "StreamStep",
    "StreamStepContext",
    "StreamWorkflow",
    "StreamWorkflowResult",
    "acknowledge_inbox_signal",
    "emit",
    "get_checkpoint",
    "get_current_signal",
    "poll_inbox",
    "run_stream_workflow",
    "save_checkpoint",
    "schedule_signal",
    "set_result",
    "stream_step",
    "stream_workflow",
    "suspend",
    "terminate",
]
