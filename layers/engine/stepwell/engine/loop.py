"""A deterministic asyncio loop, on which workflow code runs.

It has no clock, no selector and no threads. Callbacks run in the order in which they were made
ready; the loop runs until idle, then is told one outcome, then runs again. So `gather`, `wait`,
`TaskGroup`, queues, locks and `asyncio.timeout` do the same on every replay. Time is the replayed
clock; a delay is a durable timer, handed to `on_timer`. Real I/O is refused by name.

Every task has a scope: a path from the order in which tasks were created, never from the order in
which they ran, in which names are counted. Tasks and futures hash by that order too, so that sets
of them (`asyncio.wait` returns two) iterate alike on every pass.

Nothing depends on when memory is reclaimed: tasks are kept until they are done, the collector
rests while workflow code runs, and what it finalizes at other times runs no code.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import itertools
import logging
import math
import sys
import weakref
from asyncio import events as asyncio_events
from collections import deque
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any, Protocol

from stepwell.core.durations import LONGEST
from stepwell.core.ids import counted
from stepwell.core.records import Millis
from stepwell.engine.shields import Shields
from stepwell.errors import Suspended, UsageError

_LOG = logging.getLogger("stepwell.workflow")
#: Callbacks in one go after which workflow code is taken to spin.
_SPIN_LIMIT = 1_000_000
#: How often a task that goes on waiting is told that the pass is over.
_UNWIND_ROUNDS = 100
#: Below this many tasks, done ones are not looked for.
_FEW_TASKS = 64
#: Code that cannot be ended. Were it collected, its cleanup would run outside of its run, where a
#: step is a plain function.
_STUBBORN: list[Any] = []


class Scope:
    """Where identities are counted: one per task."""

    __slots__ = ("_counts", "_generators", "children", "parent", "path")

    def __init__(self, path: str, parent: Scope | None = None) -> None:
        self.path = path
        self.parent = parent
        #: How many tasks were created here.
        self.children = 0
        self._generators = 0
        self._counts: dict[str, int] = {}

    def identify(self, name: str) -> str:
        """The id of the next use of a name here."""
        occurrence = self._counts.get(name, 0) + 1
        self._counts[name] = occurrence
        return counted(self.path, name, occurrence)

    def child(self) -> Scope:
        """The scope of the next task that is created here."""
        self.children += 1
        number = self.children
        return Scope(f"{self.path}.{number}" if self.path else str(number), self)

    def generator(self) -> Scope:
        """The scope in which the next async generator begun here is closed, if it is abandoned."""
        self._generators += 1
        name = f"g{self._generators}"
        return Scope(f"{self.path}.{name}" if self.path else name, self)


class ReplayTask(asyncio.Task[Any]):
    """A task with a scope, hashed by creation order."""

    def __init__(
        self,
        coro: Any,
        *,
        order: int,
        scope: Scope,
        loop: asyncio.AbstractEventLoop,
        context: contextvars.Context,
        name: str,
        told: list[tuple[str, int]],
    ) -> None:
        self.order = order
        self.scope = scope
        self.context = context
        #: Whether its code was ended from outside, without the task being told.
        self.ended = False
        #: None until the task enters its first shield.
        self.shields: Shields | None = None
        self._told = told
        super().__init__(coro, loop=loop, context=context, name=name)

    def cancel(self, msg: Any | None = None) -> bool:
        """Tell the task, or let that wait for the end of the shield that it is in."""
        shields = None if self.done() else self.shields
        if shields is not None and shields.holds(sys._getframe(1), msg):
            return True
        return self.tell(msg)

    def tell(self, msg: Any | None) -> bool:
        """Tell the task that it is cancelled."""
        told = super().cancel(msg)
        if told:
            self._told.append((self.scope.path, self.scope.children))
        return told

    def __hash__(self) -> int:
        return self.order


class _ReplayFuture(asyncio.Future[Any]):
    """A future that workflow code may put into a set, hashed by creation order."""

    def __init__(self, order: int, loop: asyncio.AbstractEventLoop) -> None:
        self.order = order
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self.order


class _Running:
    """Makes a loop the running one of this thread, and puts back what was there before.

    The turn itself runs on a real loop in this thread. A class, for it is entered at every outcome.
    """

    __slots__ = ("_collects", "_hooks", "_loop", "_outer")

    def __init__(self, loop: DeterministicLoop) -> None:
        self._loop = loop

    def __enter__(self) -> None:
        loop = self._loop
        self._outer = asyncio_events._get_running_loop()
        self._hooks = sys.get_asyncgen_hooks()
        self._collects = gc.isenabled()
        gc.disable()
        asyncio_events._set_running_loop(loop)
        sys.set_asyncgen_hooks(*loop._generator_hooks)

    def __exit__(self, *_: object) -> None:
        sys.set_asyncgen_hooks(*self._hooks)
        asyncio_events._set_running_loop(self._outer)
        if self._collects:
            gc.enable()


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
        #: Closing tasks are made when memory is reclaimed: they must not shift the other numbers.
        self._closing_orders = itertools.count(-2, -1)
        self._callback_scope = Scope("callback")
        self._tasks: list[ReplayTask] = []
        #: The scopes whose tasks were told that they are cancelled, and their children by then.
        self.told: list[tuple[str, int]] = []
        #: How many tasks are in a shield.
        self.shielded = 0
        self._many_tasks = _FEW_TASKS
        self._generators: weakref.WeakSet[Any] = weakref.WeakSet()
        #: By id, for a generator that is being finalized has no weak references any more.
        self._generator_scopes: dict[int, Scope] = {}
        self._generator_hooks = (self._generator_begins, self._finalize)
        self._early: dict[int, asyncio.Task[Any]] = {}
        #: What Python 3.11's wait_for puts between its caller and what it waits for.
        self._between: set[asyncio.Future[Any]] = set()

    def run_until_idle(self) -> None:
        """Run callbacks until none is ready. Raises `UsageError` if that never happens."""
        if not self._ready:
            return
        if self.is_running():
            self._run_all()
        else:
            with _Running(self):
                self._run_all()

    def _run_all(self) -> None:
        ready, left = self._ready, _SPIN_LIMIT
        while ready:
            handle = ready.popleft()
            try:
                if not handle.cancelled():
                    handle._run()
            except SystemExit:
                pass  # it is the outcome of the task that raised it, not of this process
            left -= 1
            if not left:
                ready.clear()
                raise UsageError("workflow code spins: it never waits for anything durable")

    def running(self) -> _Running:
        """Be this thread's running loop, also across many runs until idle."""
        return _Running(self)

    def _generator_begins(self, generator: Any) -> None:
        self._generators.add(generator)
        self._generator_scopes[id(generator)] = self.scope().generator()

    def _finalize(self, generator: Any) -> None:
        if not self.is_running():
            return  # found by the collector, at a moment that no other pass would repeat
        scope = self._generator_scopes.pop(id(generator))
        self._new_task(generator.aclose(), scope, order=next(self._closing_orders))

    def unwind(self, context: contextvars.Context) -> list[Suspended]:
        """Raise `Suspended` where tasks wait, oldest first, until their code has ended.

        No callback runs any more. `context` is that of the run, for generators that are closed.
        Returns the marks that code swallowed to return normally; their tracebacks say where.
        """
        swallowed: list[Suspended] = []
        with self.running():
            for _ in range(_UNWIND_ROUNDS):
                left = self._unended()
                if not left:
                    break
                swallowed += [mark for task in left if (mark := self._throw(task)) is not None]
            for task in self._unended():
                # Closing would only throw once more, and drop what swallows that as well.
                _LOG.warning("%r swallows every suspension: it is left in memory", task.get_coro())
                _STUBBORN.append(task)
            for generator in list(self._generators):
                _close_generator(context, generator)
        for task in self._tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        self._tasks.clear()
        self._between.clear()
        self._ready.clear()
        return swallowed

    def _unended(self) -> list[ReplayTask]:
        return [task for task in self._tasks if not task.ended and not task.done()]

    def _throw(self, task: ReplayTask) -> Suspended | None:
        """Tell the task's code. Its mark, if the code swallowed it and returned."""
        mark = Suspended()
        coro: Any = task.get_coro()
        asyncio.tasks._enter_task(self, task)
        try:
            task.context.run(coro.throw, mark)
        except StopIteration:
            task.ended = True
            return mark
        except KeyboardInterrupt:
            raise
        except BaseException:  # the mark, or what a cleanup raised: the pass is over all the same
            task.ended = True
        finally:
            asyncio.tasks._leave_task(self, task)
        return None

    def depth(self) -> int:
        """How many shields the task that runs now is in."""
        task = asyncio.current_task(self)
        shields = task.shields if isinstance(task, ReplayTask) else None
        return 0 if shields is None else shields.depth

    def scope(self) -> Scope:
        """The scope of the task that runs now."""
        task = asyncio.current_task(self)
        return task.scope if isinstance(task, ReplayTask) else self._callback_scope

    def call_soon(  # type: ignore[override]
        self,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """Run the callback after those that are ready now."""
        handle = asyncio.Handle(callback, args, self, context)
        if self._between and args and asyncio.isfuture(args[0]) and args[0] in self._between:
            # Nothing may run between the two: later versions have nothing there.
            self._between.discard(args[0])
            self._ready.appendleft(handle)
        else:
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
        if not math.isfinite(when) or when > self.time() + LONGEST / 1000:
            raise ValueError("a delay in workflow code is a finite number, at most 100 years")
        due = math.ceil(when * 1000 - 1e-3)
        if due <= self.now:
            self._ready.append(handle)
        else:
            handle.timer_id = self._timers.start_timer(due, lambda: self._ready.append(handle))
        handle.depth = self.depth()
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        if isinstance(handle, _DurableHandle) and handle.timer_id is not None:
            self._timers.drop_timer(handle.timer_id)

    def time(self) -> float:
        """The replayed clock, in seconds."""
        return self.now / 1000

    def create_future(self) -> asyncio.Future[Any]:
        """A future of this loop."""
        future = _ReplayFuture(next(self._orders), self)
        if _WAIT_FOR_WRAPS and _is_between(sys._getframe(1)):
            self._between.add(future)
        return future

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
        current = asyncio.current_task(self)
        if isinstance(current, ReplayTask) and current.shields is not None:
            current.shields.note(caller)
        if self._early or caller.f_code in _ENSURE_FUTURE:
            made = self._made_by_asyncio(coro, caller)
            if made is not None:
                return made
        return self._new_task(coro, self.scope().child(), name, context)

    def _new_task(
        self,
        coro: Coroutine[Any, Any, Any],
        scope: Scope,
        name: str | None = None,
        context: contextvars.Context | None = None,
        order: int | None = None,
    ) -> ReplayTask:
        task = ReplayTask(
            coro,
            order=next(self._orders) if order is None else order,
            scope=scope,
            loop=self,
            name=f"workflow-{scope.path}" if name is None else name,
            context=contextvars.copy_context() if context is None else context,
            told=self.told,
        )
        self._tasks.append(task)
        if len(self._tasks) > self._many_tasks:
            self._tasks = [each for each in self._tasks if not each.done()]
            self._many_tasks = max(2 * len(self._tasks), _FEW_TASKS)
        return task

    def _made_by_asyncio(
        self, coro: Coroutine[Any, Any, Any], caller: FrameType
    ) -> asyncio.Task[Any] | None:
        """The task for a coroutine that `as_completed` or `wait_for` turns into one."""
        early = self._early.pop(id(coro), None)
        if early is not None:
            return early
        frame = _outside_ensure_future(caller)
        if frame is None:
            return None
        if frame.f_code is _WAIT_FOR:
            return self._waited_for(coro, frame)
        if frame.f_code in _AS_COMPLETED:
            self._create_early(_given_to_as_completed(frame))
            return self._early.pop(id(coro), None)
        return None

    def _create_early(self, given: list[Any]) -> None:
        # as_completed puts what it is given in a set, whose order changes from pass to pass. On the
        # first of them, tasks for all are created in the order in which they were given.
        coroutines = [item for item in given if not asyncio.isfuture(item)]
        for item in coroutines:
            if not asyncio.iscoroutine(item):
                raise UsageError(
                    "asyncio.as_completed in a workflow: pass coroutines or tasks, "
                    f"not {type(item).__name__}"
                )
        for item in coroutines:
            if id(item) not in self._early:
                self._early[id(item)] = self._new_task(item, self.scope().child())

    def _waited_for(self, coro: Coroutine[Any, Any, Any], frame: FrameType) -> ReplayTask | None:
        # Python 3.11 wraps what wait_for waits for in a task, later ones await it in place. The
        # waiter does nothing else meanwhile, so the task shares its scope, name and context, begins
        # at once and is waited for without a round in between: ids and their order are the same.
        waiter = asyncio.current_task(self)
        if not isinstance(waiter, ReplayTask):
            return None
        task = self._new_task(coro, waiter.scope, waiter.get_name(), waiter.context)
        if _WAIT_FOR_WRAPS and frame.f_locals["timeout"] > 0:
            self._between.add(task)
            begin = self._ready.pop()
            asyncio.tasks._leave_task(self, waiter)
            try:
                begin._callback(*begin._args)  # type: ignore[attr-defined]
            finally:
                asyncio.tasks._enter_task(self, waiter)
        return task

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
        #: How many shields its maker was in.
        self.depth = 0


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
_WAIT_FOR_WRAPS = sys.version_info < (3, 12)
_CANCEL_AND_WAIT = asyncio.tasks._cancel_and_wait.__code__  # type: ignore[attr-defined]
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


def _is_between(frame: FrameType | None) -> bool:
    """Whether Python 3.11's `wait_for` makes a future here, to wait for it instead of its own."""
    if frame is not None and frame.f_code is _CANCEL_AND_WAIT:
        frame = frame.f_back
    return frame is not None and frame.f_code is _WAIT_FOR and frame.f_locals["timeout"] > 0


def _given_to_as_completed(frame: FrameType) -> list[Any]:
    given = frame.f_locals.get("fs", frame.f_locals.get("aws"))
    if not isinstance(given, (list, tuple)):
        raise UsageError(
            "asyncio.as_completed in a workflow: pass a list or tuple; the order of "
            f"{type(given).__name__} is lost or not the same on every pass"
        )
    return list(given)


def _close_generator(context: contextvars.Context, generator: Any) -> None:
    closing = generator.aclose()
    try:
        context.run(closing.send, None)
        for _ in range(_UNWIND_ROUNDS):
            context.run(closing.throw, Suspended())
    except KeyboardInterrupt:
        raise
    except BaseException:  # StopIteration, the mark, or what its cleanup raised
        return
    _STUBBORN.append((generator, closing))
