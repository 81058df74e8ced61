"""What the tests of streams do again and again: start, emit, look."""

from __future__ import annotations

from typing import Any

from stepwell import Signal
from stepwell.client import RunHandle
from stepwell.engine.streaming import StreamStanding, SubscriptionStanding
from stepwell.testing import Environment


def begin(env: Environment, stream: Any, *args: Any, run: str = "default") -> RunHandle[Any]:
    """Start a stream run, and work until its steps wait."""
    client = env.client.with_options(stream_run_id=run)
    handle: RunHandle[Any] = env.wait_for(client.start(stream, *args))
    env.run_until_idle()
    return handle


def post(env: Environment, stream: str, kind: str, payload: Any = None, **options: Any) -> Signal:
    """Emit a signal from outside; nothing is done about it yet."""
    signal: Signal = env.wait_for(env.client.emit(stream, kind, payload, **options))
    return signal


def send(env: Environment, stream: str, kind: str, payload: Any = None, **options: Any) -> Signal:
    """Emit a signal from outside, and work until idle."""
    signal = post(env, stream, kind, payload, **options)
    env.run_until_idle()
    return signal


def standing(env: Environment, stream: str, run: str | None = None) -> StreamStanding:
    """A stream run as it stands."""
    return env.wait_for(env.client.stream(stream, stream_run_id=run))


def subscription(
    env: Environment, stream: str, step: str, run: str | None = None
) -> SubscriptionStanding:
    """One subscription as it stands."""
    [found] = [each for each in standing(env, stream, run).subscriptions if each.step == step]
    return found


def types(env: Environment, run_id: str) -> list[str]:
    """The events of a run, by type."""
    return [each.event.type for each in env.wait_for(env.client.history(run_id))]


def events(env: Environment, run_id: str, kind: str) -> list[Any]:
    """The events of a run of one type."""
    found = env.wait_for(env.client.history(run_id))
    return [each.event for each in found if each.event.type == kind]
