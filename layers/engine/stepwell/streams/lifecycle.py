"""Inside a stream step: the signal, the step's own state, and what shall become of it.

What a lifecycle says of its subscription takes effect when it returns, all of it in one event, and
none of it when it raises. Of several, the strongest counts: cancel, terminate, suspend, resume.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from stepwell.authoring.checkpoints import value_codec
from stepwell.authoring.context import RUN, STEP, RunContext, coloured
from stepwell.core.definitions import StreamStepDefinition
from stepwell.core.ids import check_note
from stepwell.core.records import Payload
from stepwell.core.signals import NumberedSignal, StreamKey
from stepwell.core.subscription import SubscriptionStatus
from stepwell.errors import PayloadError, UsageError
from stepwell.streams.signals import Signal, shown_signal

#: Waiting signals that one look shows at most.
_POLLED = 100


@dataclass(slots=True)
class Effects:
    """What one handling has asked for, so far: values as JSON, None for what was not said.

    `resumed` is what `on_signal` asks for, `called` that the lifecycle was called. `reason` is that
    of a suspension, `cancel_reason` that of a cancel.
    """

    checkpoint: str | None = None
    result: str | None = None
    terminated: bool = False
    cancelled: bool = False
    suspended: bool = False
    resumed: bool = False
    called: bool = False
    reason: str | None = None
    cancel_reason: str | None = None
    resume: tuple[str, ...] | None = None
    acknowledged: list[int] = field(default_factory=list)


class Handling:
    """One call of a stream step, for one signal or, without one, at its start.

    `checkpoint` is the JSON of what the last one saved, `status` how the subscription stood before.
    """

    def __init__(
        self,
        definition: StreamStepDefinition,
        key: StreamKey,
        signal: Signal | None,
        checkpoint: str | None,
        status: SubscriptionStatus,
    ) -> None:
        self.definition = definition
        self.key = key
        self.signal = signal
        self.status = status
        self.effects = Effects()
        self.polled: dict[str, int] = {}
        self._checkpoint = checkpoint

    @property
    def checkpoint(self) -> Any:
        """The checkpoint as saved last; each reader gets one of his own."""
        text = self.effects.checkpoint or self._checkpoint
        return None if text is None else json.loads(text)

    def suspend(self, reason: str, resume_signals: Iterable[str] | None) -> None:
        """Note a suspension. Raises `UsageError` on types that the step does not take."""
        check_note("reason", reason)
        resume = None if resume_signals is None else tuple(resume_signals)
        unknown = sorted({*(resume or ())} - {*self.definition.signals})
        if unknown or resume == ():
            takes = ", ".join(map(repr, sorted(self.definition.signals)))
            raise UsageError(
                f"suspend: resume_signals {unknown or 'are none'}: stream step "
                f"{self.definition.name!r} takes {takes}; only these can wake it"
            )
        self.effects.suspended = True
        self.effects.reason, self.effects.resume = reason, resume


HANDLING: ContextVar[Handling | None] = ContextVar("stepwell_handling", default=None)


class Done(Awaitable[None]):
    """What has been done already: awaiting it changes nothing."""

    def __await__(self) -> Generator[Any, Any, None]:
        """At once."""
        return
        yield


_DONE = Done()


def get_current_signal() -> Any:
    """The signal that the lifecycle was called for, None at the start; await it in `async` code.

    Raises `UsageError` outside a stream step.
    """
    here, run = _here("get_current_signal"), _run()
    if run.blocking:
        return here.signal
    return run.compose(_given(lambda: here.signal), "get_current_signal")


def get_checkpoint() -> Any:
    """What `save_checkpoint` saved last, here or for an earlier signal; None if nothing was.

    Await it in `async` code. Raises `UsageError` outside a stream step.
    """
    here, run = _here("get_checkpoint"), _run()
    if run.blocking:
        return here.checkpoint
    return run.compose(_given(lambda: here.checkpoint), "get_checkpoint")


def save_checkpoint(data: Any) -> Awaitable[None]:
    """Keep JSON for the next signal, in place of what was kept. It is what it is now.

    It takes effect with the return of the lifecycle. Raises `PayloadError` on what is no JSON,
    `UsageError` outside a stream step.
    """
    here = _here("save_checkpoint")
    here.effects.checkpoint = _encoded(data, f"checkpoint of stream step {here.definition.name!r}")
    return _DONE


def set_result(value: Any) -> Awaitable[None]:
    """Say what the step has come to, for who waits for its stream; the last one counts.

    It takes effect with the return of the lifecycle. Raises `PayloadError` on what cannot be
    carried, `UsageError` outside a stream step.
    """
    here = _here("set_result")
    here.effects.result = _encoded(value, f"result of stream step {here.definition.name!r}")
    return _DONE


def terminate() -> Awaitable[None]:
    """End the subscription with the return of the lifecycle: it takes no more signals.

    Raises `UsageError` outside a stream step.
    """
    _here("terminate").effects.terminated = True
    return _DONE


def suspend(reason: str, resume_signals: Iterable[str] | None = None) -> Awaitable[None]:
    """Wait for one of these signals, with the return of the lifecycle; others are held meanwhile.

    `reason` is shown on the stream's run and on its parent. Without `resume_signals` any signal
    that the step takes resumes it. What was held comes after that, in its order. Raises
    `UsageError` on a type that the step does not take, and outside a stream step.
    """
    _here("suspend").suspend(reason, resume_signals)
    return _DONE


def poll_inbox(signal_types: Iterable[str] | None = None, *, limit: int = _POLLED) -> Any:
    """The signals that wait behind the current one, oldest first, at most `limit`; await it.

    They stay where they are, and are delivered in their turn, unless they are acknowledged. By
    default of all types that the step takes. Those whose payload does not fit the step's model are
    left out, to be parked in their turn. Recorded, values and all: the same on every replay.
    Raises `UsageError` outside a stream step, and unless `limit` is from 1 to 100.
    """
    here, run = _here("poll_inbox"), _run()
    if not 1 <= limit <= _POLLED:
        raise UsageError(f"poll_inbox: limit is from 1 to {_POLLED}, not {limit}")
    wanted = tuple(here.definition.signals if signal_types is None else signal_types)
    return coloured(run, run.compose(_polled(here, run, wanted, limit), "poll_inbox"))


async def _polled(
    here: Handling, run: RunContext, types: tuple[str, ...], limit: int
) -> list[Signal]:
    found: Sequence[NumberedSignal] = await run.poll_inbox(types, limit)
    shown: list[Signal] = []
    for number, sent in found:
        schema = here.definition.signals.get(sent.type)
        with suppress(PayloadError):
            shown.append(shown_signal(here.key, sent, number, schema=schema))
            here.polled[sent.signal_id] = number
    return shown


def acknowledge_inbox_signal(signal_id: str) -> Awaitable[None]:
    """Take a signal that `poll_inbox` showed: with the return of the lifecycle it is handled.

    Raises `UsageError` on one that this lifecycle has not seen, and outside a stream step.
    """
    here = _here("acknowledge_inbox_signal")
    number = here.polled.get(signal_id)
    if number is None:
        raise UsageError(
            f"acknowledge_inbox_signal: poll_inbox has not shown signal {signal_id!r} here"
        )
    if number not in here.effects.acknowledged:
        here.effects.acknowledged.append(number)
    return _DONE


def _encoded(value: Any, owner: str) -> Payload:
    return value_codec(value, owner).encode(value)


def _run() -> RunContext:
    run = RUN.get()
    assert run is not None
    return run


async def _given(value: Callable[[], Any]) -> Any:
    return value()


def _here(what: str) -> Handling:
    here = HANDLING.get()
    if STEP.get() is not None:
        raise UsageError(f"{what}: a step cannot do this; do it in the stream step, and pass it on")
    if here is None:
        raise UsageError(f"{what}: there is no stream step here")
    return here
