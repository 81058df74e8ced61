"""`CommandHook`: a program as a guard, spoken to in JSON on its standard input and output."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import IO, Any, cast

from stepwell.core.durations import to_millis
from stepwell.errors import DurationLike, StepwellError

_MOST_ARGUMENTS = 16
_ARGUMENTS_LIMIT = 8 * 1024
_LONGEST = 30_000
_INPUT_LIMIT = 256 * 1024
_OUTPUT_LIMIT = 64 * 1024
#: How much of its standard error is told, from the end.
_TAIL = 2_000
_CHUNK = 64 * 1024
#: How often it is looked whether a program has ended whose pipes somebody else holds, in seconds.
_LOOK = 0.05


class CommandFailed(StepwellError):
    """A program that is a guard did not answer: it failed, took too long, or wrote no JSON."""


class CommandHook:
    """A guard that runs a program: the payload as JSON goes in, its answer as JSON comes out.

    There is no shell. `timeout` is from when it begins until it has ended, from 1 ms to 30 s. The
    program sees only those variables of the environment that `env` names. It is killed when it
    takes too long or writes more than 64 KiB, and in any case all that it started is. Raises
    `ValueError` on what cannot be run.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        timeout: DurationLike = 1.0,
        env: Sequence[str] = ("PATH",),
    ) -> None:
        if isinstance(argv, str) or not 1 <= len(argv) <= _MOST_ARGUMENTS:
            raise ValueError(f"CommandHook: give 1 to {_MOST_ARGUMENTS} arguments as a list")
        for each in argv:
            if not isinstance(each, str) or not each or "\0" in each:
                raise ValueError(f"CommandHook: {each!r} is no argument: give text")
        if len(json.dumps(list(argv))) > _ARGUMENTS_LIMIT:
            raise ValueError(f"CommandHook: arguments of more than {_ARGUMENTS_LIMIT:,} bytes")
        if isinstance(timeout, bool):
            raise ValueError(f"CommandHook: timeout: {timeout!r} is no duration")
        millis = to_millis(timeout)
        if not 1 <= millis <= _LONGEST:
            raise ValueError(f"CommandHook: timeout is from 1 ms to 30 s, not {timeout!r}")
        if isinstance(env, str) or not all(isinstance(name, str) and name for name in env):
            raise ValueError("CommandHook: env lists the names of variables")
        self.argv = tuple(argv)
        self.timeout = millis / 1000
        self.env = tuple(env)

    def __repr__(self) -> str:
        return f"CommandHook({list(self.argv)!r})"

    def __call__(self, payload: Mapping[str, Any]) -> Any:
        """Run the program once, and return what it answers. Raises `CommandFailed`."""
        given = json.dumps(payload, ensure_ascii=False, separators=(",", ":")).encode()
        if len(given) > _INPUT_LIMIT:
            raise CommandFailed(
                f"{self!r}: the payload has {len(given):,} bytes, the limit is {_INPUT_LIMIT:,}"
            )
        try:
            process = subprocess.Popen(  # noqa: S603 - no shell; the author says what is run
                self.argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={name: os.environ[name] for name in self.env if name in os.environ},
                start_new_session=True,
            )
        except OSError as error:
            raise CommandFailed(f"{self!r}: cannot be run: {error}") from None
        with process, _killed(process):
            return _Conversation(self, process, given).answer()


@contextlib.contextmanager
def _killed(process: subprocess.Popen[bytes]) -> Any:
    """In the end, kill the program and all that it started and left in its group."""
    try:
        yield
    finally:
        # Its id is its group's, and nobody else's for as long as anything in the group lives.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


class _Conversation:
    """One run of a program: what was written and read so far."""

    def __init__(self, hook: CommandHook, process: subprocess.Popen[bytes], given: bytes) -> None:
        self._hook = hook
        self._process = process
        self._left = memoryview(given)
        self._out = bytearray()
        self._err = bytearray()
        # A program runs by real time, inside a step.
        self._ends_at = time.monotonic() + hook.timeout  # noqa: TID251
        self._selector = selectors.DefaultSelector()

    def answer(self) -> Any:
        """What the program answers."""
        with self._selector:
            self._talk()
        code = self._end()
        if code:
            raise self._failure(f"ended with {code}")
        try:
            return json.loads(self._out)
        except (ValueError, RecursionError):
            what = "no JSON" if self._out.strip() else "nothing"
            raise self._failure(f"wrote {what}") from None

    def _talk(self) -> None:
        for stream, event in (
            (self._process.stdin, selectors.EVENT_WRITE),
            (self._process.stdout, selectors.EVENT_READ),
            (self._process.stderr, selectors.EVENT_READ),
        ):
            assert stream is not None
            os.set_blocking(stream.fileno(), False)
            self._selector.register(stream, event)
        while self._selector.get_map():
            # What it has started may hold its pipes for longer than it lives: all that it wrote
            # itself has been read when it had ended before nothing more was found.
            ended = self._process.poll() is not None
            ready = self._selector.select(min(self._time_left(), 0 if ended else _LOOK))
            for key, _ in ready:
                self._step(cast("IO[bytes]", key.fileobj))
            if ended and not ready:
                return

    def _step(self, stream: IO[bytes]) -> None:
        if stream is self._process.stdin:
            self._write(stream)
            return
        try:
            data = os.read(stream.fileno(), _CHUNK)
        except BlockingIOError:
            return
        if not data:
            self._close(stream)
        elif stream is self._process.stdout:
            self._out += data
            if len(self._out) > _OUTPUT_LIMIT:
                raise self._failure(f"wrote more than {_OUTPUT_LIMIT:,} bytes, and was killed")
        else:
            self._err = (self._err + data)[-_TAIL:]

    def _write(self, stream: IO[bytes]) -> None:
        try:
            self._left = self._left[os.write(stream.fileno(), self._left[:_CHUNK]) :]
        except BlockingIOError:
            return
        except BrokenPipeError:  # it does not care for its input
            self._left = self._left[:0]
        if not self._left:
            self._close(stream)

    def _close(self, stream: IO[bytes]) -> None:
        self._selector.unregister(stream)
        with contextlib.suppress(BrokenPipeError):
            stream.close()

    def _end(self) -> int:
        try:
            return self._process.wait(self._time_left())
        except subprocess.TimeoutExpired:
            raise self._too_long() from None

    def _time_left(self) -> float:
        left = self._ends_at - time.monotonic()  # noqa: TID251 - as above
        if left <= 0:
            raise self._too_long()
        return left

    def _too_long(self) -> CommandFailed:
        return self._failure(f"took longer than {self._hook.timeout:g} s, and was killed")

    def _failure(self, what: str) -> CommandFailed:
        told = self._err.decode(errors="replace").strip()
        said = f"; on its standard error: {told}" if told else ""
        return CommandFailed(f"{self._hook!r}: it {what}{said}")
