"""A deterministic asyncio loop, on which workflow code runs.

It has no clock, no selector and no threads. Callbacks run in the order in which they were made
ready; the loop runs until idle, then is told one outcome, then runs again. So `gather`, `wait`,
`TaskGroup`, queues, locks and `asyncio.timeout` do the same on every replay. Time is the replayed
clock; a delay is a durable timer, handed to `on_timer`. Real I/O is refused by name.

Every task has a scope: a path from the order in which tasks were created, never from the order in
which they ran, in which names are counted. Tasks hash by that order too, so that sets of tasks
(`asyncio.wait` returns them) iterate alike on every pass.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import logging
import math
import sys
import weakref
from asyncio import events as asyncio_events
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Protocol

from stepwell.core.ids import counted
from stepwell.core.records import Millis
from stepwell.errors import UsageError

_LOG = logging.getLogger("stepwell.workflow")
#: Callbacks in one go after which workflow code is taken to spin.
_SPIN_LIMIT = 2_000_000


class Scope:
    """Where identities are counted: one per task."""

    __slots__ = ("_children", "_counts", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self._children = 0
        self._counts: dict[str, int] = {}

    def identify(self, name: str) -> str:
        """The id of the next use of a name here."""
        occurrence = self._counts.get(name, 0) + 1
        self._counts[name] = occurrence
        return counted(self.path, name, occurrence)

    def child(self) -> Scope:
        """The scope of the next task that is created here."""
        self._children += 1
        return Scope(f"{self.path}.{self._children}" if self.path else str(self._children))


class ReplayTask(asyncio.Task[Any]):
    """A task with a scope, hashed by creation order."""

    def __init__(
        self, coro: Any, *, order: int, scope: Scope, loop: asyncio.AbstractEventLoop, **kwargs: Any
    ) -> None:
        self.order = order
        self.scope = scope
        super().__init__(coro, loop=loop, **kwargs)

    def __hash__(self) -> int:
        return self.order


class TimerControl(Protocol):
    """What the loop asks of whoever keeps timers."""

    def start_timer(self, due: Millis, fire: Callable[[], None]) -> str:
        """Start a timer under the current scope; returns its id."""

    def drop_timer(self, timer_id: str) -> None:
        """The timer is not waited for any more."""


class DeterministicLoop(asyncio.AbstractEventLoop):
    """The loop of one replay. `now` is moved by the replay, never by itself."""

    def __init__(self, timers: TimerControl, now: Millis) -> None:
        self.now = now
        self._timers = timers
        self._ready: deque[asyncio.Handle] = deque()
        self._orders = itertools.count(1)
        self._callback_scope = Scope("callback")
        self._asyncgens: weakref.WeakSet[Any] = weakref.WeakSet()
        self._early: dict[int, asyncio.Task[Any]] = {}

    # -- running ---------------------------------------------------------------------------

    def run_until_idle(self) -> None:
        """Run callbacks until none is ready. Raises `UsageError` if that never happens."""
        ready = self._ready
        if not ready:
            return
        with self._running():
            left = _SPIN_LIMIT
            while ready:
                handle = ready.popleft()
                if not handle.cancelled():
                    handle._run()
                left -= 1
                if not left:
                    raise UsageError("workflow code spins: it never waits for anything durable")

    @contextmanager
    def _running(self) -> Iterator[None]:
        # The turn itself runs on a real loop in this thread; it is put back afterwards.
        outer = asyncio_events._get_running_loop()
        hooks = sys.get_asyncgen_hooks()
        asyncio_events._set_running_loop(self)
        sys.set_asyncgen_hooks(firstiter=self._asyncgens.add, finalizer=self._finalize)
        try:
            yield
        finally:
            sys.set_asyncgen_hooks(*hooks)
            asyncio_events._set_running_loop(outer)

    def _finalize(self, generator: Any) -> None:
        self._asyncgens.discard(generator)
        self.create_task(generator.aclose())

    def close_asyncgens(self) -> None:
        """Close what async generators are left, as part of unwinding."""
        for generator in list(self._asyncgens):
            self.create_task(generator.aclose())
        self._asyncgens.clear()

    def scope(self) -> Scope:
        """The scope of the task that runs now."""
        task = asyncio.current_task(self)
        return task.scope if isinstance(task, ReplayTask) else self._callback_scope

    # -- what asyncio asks of a loop ---------------------------------------------------------

    def call_soon(  # type: ignore[override]
        self,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """Run the callback after those that are ready now."""
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run the callback after a durable timer."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run the callback when the replayed clock has reached a time."""
        handle = _DurableHandle(when, callback, args, self, context)
        due = math.ceil(when * 1000 - 1e-3)
        if due <= self.now:
            self._ready.append(handle)
        else:
            handle.timer_id = self._timers.start_timer(due, lambda: self._ready.append(handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        if isinstance(handle, _DurableHandle) and handle.timer_id is not None:
            self._timers.drop_timer(handle.timer_id)

    def time(self) -> float:
        """The replayed clock, in seconds."""
        return self.now / 1000

    def create_future(self) -> asyncio.Future[Any]:
        """A future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self,
        coro: Coroutine[Any, Any, Any],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
        **_: Any,
    ) -> asyncio.Task[Any]:
        """A task with a scope of its own. Eager starts are off."""
        caller = sys._getframe(1)
        if self._early or caller.f_code in _ENSURE_FUTURE:
            early = self._created_early(coro, caller)
            if early is not None:
                return early
        return self._new_task(coro, self._scope_for(caller), name, context)

    def _new_task(
        self,
        coro: Coroutine[Any, Any, Any],
        scope: Scope,
        name: str | None = None,
        context: contextvars.Context | None = None,
    ) -> ReplayTask:
        return ReplayTask(
            coro,
            order=next(self._orders),
            scope=scope,
            loop=self,
            name=name or f"workflow-{scope.path}",
            context=context,
        )

    def _scope_for(self, caller: FrameType) -> Scope:
        here = self.scope()
        # Python 3.11 wraps what wait_for waits for in a task, later ones await it in place. The
        # waiter does nothing else meanwhile, so counting on in its scope gives the same ids.
        if _called_by(caller, _WAIT_FOR):
            return here
        return here.child()

    def _created_early(
        self, coro: Coroutine[Any, Any, Any], caller: FrameType
    ) -> asyncio.Task[Any] | None:
        """The task of a coroutine that `as_completed` was given.

        as_completed puts what it is given in a set, whose order changes from pass to pass. On the
        first of them, tasks for all are created in the order in which they were given.
        """
        early = self._early.pop(id(coro), None)
        if early is not None:
            return early
        given = _given_to_as_completed(caller)
        if given is None:
            return None
        for item in given:
            if asyncio.isfuture(item):
                continue
            if not asyncio.iscoroutine(item):
                raise UsageError(
                    "asyncio.as_completed in a workflow: pass coroutines or tasks, "
                    f"not {type(item).__name__}"
                )
            if id(item) not in self._early:
                self._early[id(item)] = self._new_task(item, self.scope().child())
        return self._early.pop(id(coro), None)

    def get_debug(self) -> bool:
        """Never in debug mode: it would measure real time."""
        return False

    def is_running(self) -> bool:
        """Whether a callback of this loop runs now."""
        return asyncio_events._get_running_loop() is self

    def is_closed(self) -> bool:
        """The loop holds nothing that needs closing."""
        return False

    def close(self) -> None:
        """The loop holds nothing that needs closing."""

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Log what asyncio reports."""
        _LOG.warning(
            "in workflow code: %s", context.get("message"), exc_info=context.get("exception")
        )

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Log what asyncio reports."""
        self.call_exception_handler(context)


class _DurableHandle(asyncio.TimerHandle):
    """The handle of a durable timer; cancelling it drops the timer."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.timer_id: str | None = None


def _refusal(name: str) -> Callable[..., Any]:
    def refuse(*_: Any, **__: Any) -> Any:
        raise UsageError(
            f"workflow code did real I/O (loop.{name}): workflow code is replayed, so it may only "
            "wait for steps, hooks and timers; do this in a step"
        )

    refuse.__name__ = name
    refuse.__doc__ = "Refused: real I/O belongs in a step."
    return refuse


_ALLOWED = frozenset(name for name in vars(DeterministicLoop) if not name.startswith("__")) | {
    "shutdown_asyncgens",
    "shutdown_default_executor",
    "get_task_factory",
    "set_debug",
}

for _name, _member in list(vars(asyncio.AbstractEventLoop).items()):
    if callable(_member) and not _name.startswith("_") and _name not in _ALLOWED:
        setattr(DeterministicLoop, _name, _refusal(_name))

_WAIT_FOR = asyncio.wait_for.__code__
_AS_COMPLETED = {asyncio.as_completed.__code__}
if sys.version_info >= (3, 13):
    _AS_COMPLETED.add(asyncio.tasks._AsCompletedIterator.__init__.__code__)  # type: ignore[attr-defined]
_ENSURE_FUTURE = {
    function.__code__
    for function in (
        asyncio.ensure_future,
        getattr(asyncio.tasks, "_ensure_future", asyncio.ensure_future),
    )
}


def _outside_ensure_future(frame: FrameType | None) -> FrameType | None:
    """The frame that called `ensure_future`, comprehensions of its own skipped."""
    while frame is not None and (
        frame.f_code in _ENSURE_FUTURE or frame.f_code.co_name in ("<setcomp>", "<listcomp>")
    ):
        frame = frame.f_back
    return frame


def _called_by(caller: FrameType, code: Any) -> bool:
    if caller.f_code not in _ENSURE_FUTURE:
        return False
    frame = _outside_ensure_future(caller)
    return frame is not None and frame.f_code is code


def _given_to_as_completed(caller: FrameType) -> list[Any] | None:
    frame = _outside_ensure_future(caller)
    if frame is None or frame.f_code not in _AS_COMPLETED:
        return None
    given = frame.f_locals.get("fs", frame.f_locals.get("aws"))
    if not isinstance(given, (list, tuple)):
        raise UsageError(
            "asyncio.as_completed in a workflow: pass a list or tuple; the order of "
            f"{type(given).__name__} is lost or not the same on every pass"
        )
    return list(given)
