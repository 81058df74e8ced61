"""What a stream step decides on a signal before its lifecycle: `on_signal` and its context."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any

from stepwell.core.ids import check_note
from stepwell.core.subscription import SubscriptionStatus
from stepwell.streams.lifecycle import HANDLING, Done, Effects, Handling

_DONE = Done()


class StreamStepContext:
    """What `on_signal(signal, ctx)` can do.

    The strongest counts: cancel, terminate, suspend, resume. With none of them the signal is taken
    and the step stays as it is. All take effect when `on_signal` has returned, and none of them
    when it raises.
    """

    def __init__(self, handling: Handling, run_id: str) -> None:
        self._handling = handling
        self.run_id = run_id

    @property
    def status(self) -> SubscriptionStatus:
        """How the subscription stands, without this signal."""
        return self._handling.status

    @property
    def stream_id(self) -> str:
        """The stream that the signal came on."""
        return self._handling.key.stream

    def resume(self) -> Awaitable[None]:
        """Call the lifecycle, with this signal as the current one."""
        self._handling.effects.resumed = True
        return _DONE

    def terminate(self) -> Awaitable[None]:
        """End the subscription, without calling the lifecycle."""
        self._handling.effects.terminated = True
        return _DONE

    def suspend(self, reason: str, resume_signals: Iterable[str] | None = None) -> Awaitable[None]:
        """Wait for one of these signals, without calling the lifecycle; as `suspend`."""
        self._handling.suspend(reason, resume_signals)
        return _DONE

    def cancel(self, reason: str | None = None) -> Awaitable[None]:
        """End the subscription as cancelled."""
        check_note("reason", reason)
        self._handling.effects.cancelled = True
        self._handling.effects.cancel_reason = reason
        return _DONE


def caller_of(handling: Handling, run_id: str) -> Callable[[], Any]:
    """The function that handles a signal, in the colour of its step. It returns the effects."""
    context = StreamStepContext(handling, run_id)
    if handling.definition.colour == "sync":
        return lambda: _handle(handling, context)
    return lambda: _handle_async(handling, context)


def _handle(handling: Handling, context: StreamStepContext) -> Effects:
    HANDLING.set(handling)
    decide = handling.definition.on_signal
    if decide is not None and handling.signal is not None:
        decide(handling.signal, context)
        if not _is_called(handling.effects):
            return handling.effects
    handling.effects.called = True
    handling.definition.function()
    return handling.effects


def _handle_async(handling: Handling, context: StreamStepContext) -> Coroutine[Any, Any, Effects]:
    async def handle() -> Effects:
        HANDLING.set(handling)
        decide = handling.definition.on_signal
        if decide is not None and handling.signal is not None:
            decided = decide(handling.signal, context)
            if inspect.isawaitable(decided):
                await decided
            if not _is_called(handling.effects):
                return handling.effects
        handling.effects.called = True
        await handling.definition.function()
        return handling.effects

    return handle()


def _is_called(effects: Effects) -> bool:
    """Whether `on_signal` wants the lifecycle called. What it asked for weakly is left to that."""
    stronger = effects.cancelled or effects.terminated or effects.suspended
    return effects.resumed and not stronger
