"""Errors about signals and the stream runs that they are for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stepwell.errors.calls import listed
from stepwell.errors.root import StepwellError


class SignalError(StepwellError):
    """A signal was not taken, or not mended; `stream` and `stream_run` say where it was to go."""

    def __init__(self, stream: str, stream_run: str, message: str) -> None:
        super().__init__(f"stream run {stream}/{stream_run}: {message}")
        self.stream = stream
        self.stream_run = stream_run


class SignalRejected(SignalError):
    """The payload does not fit what a stream step takes. Nothing was sent: correct it.

    `signal_type` and `step` say whose schema it is, `errors` what is wrong with which part.
    """

    def __init__(
        self,
        stream: str,
        stream_run: str,
        signal_type: str,
        step: str,
        errors: Sequence[Mapping[str, str]],
    ) -> None:
        problem = f"signal {signal_type!r} does not fit step {step!r}: {listed(errors)}"
        super().__init__(stream, stream_run, problem)
        self.signal_type = signal_type
        self.step = step
        self.errors = tuple(errors)


class StreamEnded(SignalError):
    """The stream run has ended, so nobody would take the signal. Nothing was sent."""

    def __init__(self, stream: str, stream_run: str) -> None:
        super().__init__(stream, stream_run, "it has ended and takes no more signals")


class SubscriptionNotFound(SignalError):
    """No step of this name has subscribed to the stream run; `step` is that name."""

    def __init__(self, stream: str, stream_run: str, step: str) -> None:
        super().__init__(stream, stream_run, f"no step {step!r} has subscribed")
        self.step = step


class SignalNotParked(SignalError):
    """The subscription has no parked signal of this number."""

    def __init__(self, stream: str, stream_run: str, step: str, sequence: int) -> None:
        super().__init__(stream, stream_run, f"step {step!r} has no parked signal {sequence}")
