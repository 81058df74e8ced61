"""One signal's handling as a replay: the code that it calls, and what that came to. Pure."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from stepwell.core.commands import PollInbox
from stepwell.core.definitions import StreamStepDefinition, WorkflowDefinition
from stepwell.core.payload import arguments, codec
from stepwell.core.records import Payload
from stepwell.core.signals import NumberedSignal, StreamKey
from stepwell.core.state import RunState
from stepwell.core.subscription import Rest, Subscription, handling_id
from stepwell.engine.replay import Replay
from stepwell.streams.deciding import caller_of
from stepwell.streams.lifecycle import Effects, Handling
from stepwell.streams.signals import shown_signal


def _nothing() -> None: ...


_NO_ARGUMENTS = arguments(_nothing, "a subscription")
_END = codec(dict[str, Any], "the end of a subscription")


@dataclass(frozen=True, slots=True)
class Left:
    """What a handling leaves its subscription as."""

    status: Rest
    reason: str | None = None
    resume: tuple[str, ...] | None = None


def left_by(effects: Effects, known: Subscription) -> Left:
    """What effects come to: the strongest counts. A signal that was passed changes nothing."""
    if effects.cancelled:
        return Left("cancelled", effects.cancel_reason)
    if effects.terminated:
        return Left("terminated")
    if effects.suspended:
        return Left("suspended", effects.reason, effects.resume)
    if effects.called:
        return Left("waiting")
    return Left(known.status, known.reason, known.resume)


def workflow_of(step: StreamStepDefinition) -> WorkflowDefinition:
    """A stream step as what a subscription is a run of."""
    return WorkflowDefinition(
        name=step.full_name,
        version="1",
        function=_nothing,
        colour=step.colour,
        arguments=_NO_ARGUMENTS,
        result=_END,
    )


def handling_replay(
    step: StreamStepDefinition,
    run_id: str,
    state: RunState,
    texts: Mapping[Payload, str],
    *,
    grace: float,
) -> HandlingReplay:
    """The replay of the signal under way. Its outcome is `Returned` with `Effects`, if it ends.

    Raises `PayloadError` when the signal's payload does not fit the step's schema.
    """
    known = state.subscription
    assert known is not None
    current, key = known.current, StreamKey(known.stream, known.stream_run)
    assert current is not None
    signal = None
    if current.signal is not None:
        schema = step.signals.get(current.signal.type)
        signal = shown_signal(key, current.signal, current.sequence, texts=texts, schema=schema)
    checkpoint = known.checkpoint
    text = None if checkpoint is None else texts.get(checkpoint, checkpoint)
    handling = Handling(step, key, signal, text, known.status)
    replay = HandlingReplay(
        run_id,
        replace(workflow_of(step), function=caller_of(handling, run_id)),
        state,
        texts,
        grace=grace,
        scope=handling_id(current.sequence),
    )
    replay.skipped = current.number - 2
    return replay


class HandlingReplay(Replay):
    """One pass of a stream step's code for one signal."""

    def poll_inbox(
        self, types: tuple[str, ...], limit: int
    ) -> Coroutine[Any, Any, Sequence[NumberedSignal]]:
        """The signals that wait behind the one under way."""
        return self._make(self._poll(types, limit), "poll_inbox")

    async def _poll(self, types: tuple[str, ...], limit: int) -> Sequence[NumberedSignal]:
        if self._over:
            await self._come_late()
        command = PollInbox(self.loop.scope().identify("~poll"), types, limit)
        self._ask(command)
        found: Sequence[NumberedSignal] = await self._wait_for(command)
        return found
