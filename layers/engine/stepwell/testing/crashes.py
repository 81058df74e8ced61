"""Killing a process at a chosen port call, in a test."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import Any, Literal, cast

from stepwell.engine.ports import Ports

#: Ports whose calls reach the outside; a clock and ids do not fail.
_OUTSIDE = frozenset(
    {
        *("store", "blobs", "queue", "steps", "maps", "timers"),
        *("streams", "signals", "signal_timers"),
    }
)


class Crash(BaseException):
    """The process died. Like a kill, nothing in it can stop this."""


class Crasher:
    """Counts port calls and raises `Crash` at one of them."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self._at: int | None = None
        self._when: Literal["before", "after"] = "before"
        self._armed = False
        self._dead = False

    def crash_at(self, call: int, when: Literal["before", "after"]) -> None:
        """Crash once, at the n-th call (1, 2, 3 …) from here on."""
        self.calls.clear()
        self._at = call
        self._when = when

    @contextmanager
    def armed(self) -> Iterator[None]:
        """Count and crash inside only: the calls of a turn, not those of a test."""
        self._armed, self._dead = True, False
        try:
            yield
        except BaseException as error:
            if self._dead and not isinstance(error, Crash):
                raise Crash from error
            raise
        else:
            if self._dead:
                raise Crash
        finally:
            self._armed = False

    def wrap(self, ports: Ports) -> Ports:
        """Ports that crash."""
        wrapped = {
            field.name: _Crashing(getattr(ports, field.name), field.name, self)
            if field.name in _OUTSIDE
            else getattr(ports, field.name)
            for field in fields(ports)
        }
        return Ports(**cast("dict[str, Any]", wrapped))

    async def call(self, name: str, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Make a call of a port, or die."""
        if self._dead:
            raise Crash  # nothing more comes from a dead process
        if not self._armed:
            return await method(*args, **kwargs)
        self.calls.append(name)
        fatal = self._at is not None and len(self.calls) == self._at
        if fatal and self._when == "before":
            self._die()
        result = await method(*args, **kwargs)
        if fatal:
            self._die()
        return result

    def _die(self) -> None:
        self._at = None
        self._dead = True
        raise Crash


class _Crashing:
    def __init__(self, port: Any, name: str, crasher: Crasher) -> None:
        self._port = port
        self._name = name
        self._crasher = crasher

    def __getattr__(self, method: str) -> Any:
        target = getattr(self._port, method)
        return functools.partial(self._crasher.call, f"{self._name}.{method}", target)
