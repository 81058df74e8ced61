"""Threads for `def` functions: a pool for steps, and a hand-over for `def` workflows.

All threads are daemons: an abandoned step must not keep a process alive.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import queue
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, NamedTuple

from stepwell.errors import Suspended, UsageError

_LOG = logging.getLogger("stepwell.workflow")
#: The name of the threads of `def` workflows.
WORKFLOW_THREAD = "stepwell-workflow"
#: How often a thread is told that its pass is over before it is left behind.
_TOLD_LIMIT = 100


def _leave() -> None:
    """Tells a thread of a pool to end."""


class ThreadPool:
    """Runs `def` steps. Threads are made as needed and reused; their number has a limit.

    `concurrent.futures` is not used because it joins its threads at exit, also stuck ones.
    """

    def __init__(self, limit: int = 64) -> None:
        self._limit = limit
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._idle = 0

    @property
    def limit(self) -> int:
        """How many threads there may be, abandoned ones included."""
        return self._limit

    @property
    def working(self) -> bool:
        """Whether a call is under way, or waits for a thread."""
        with self._lock:
            return self._threads > self._idle

    def submit(self, call: Callable[[], None]) -> None:
        """Run the call in a thread; it must not raise. Beyond the limit, calls wait their turn."""
        with self._lock:
            if self._idle:
                self._idle -= 1
                grow = False
            else:
                grow = self._threads < self._limit
                self._threads += grow
        self._calls.put(call)
        if grow:
            threading.Thread(target=self._work, name="stepwell-step", daemon=True).start()

    def abandon(self) -> None:
        """A call will perhaps never return: its thread does not count towards the limit."""
        with self._lock:
            self._limit += 1

    def recover(self) -> None:
        """A call that was abandoned has returned after all."""
        with self._lock:
            self._limit -= 1

    def close(self) -> None:
        """Let the threads go as they become free. Nothing may be submitted after this."""
        with self._lock:
            for _ in range(self._threads):
                self._calls.put(_leave)

    def _work(self) -> None:
        while (call := self._calls.get()) is not _leave:
            call()
            with self._lock:
                # A waiting call takes this thread at once, so it was not idle.
                if self._calls.empty():
                    self._idle += 1


async def in_thread(pool: ThreadPool, function: Callable[[], Any]) -> Any:
    """Run a plain function of the author's off the loop, in the context of the caller.

    When the caller is cancelled the call is abandoned, and not begun if it has not been yet.
    """
    loop = asyncio.get_running_loop()
    context = contextvars.copy_context()
    future: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()

    def settle(result: Any, error: BaseException | None) -> None:
        if future.done():
            pool.recover()
        else:
            future.set_result((result, error))

    def call() -> None:
        result: Any = None
        error: BaseException | None = None
        if not future.done():
            try:
                result = context.run(function)
            except BaseException as raised:  # handed to the awaiting side
                error = raised
        with suppress(RuntimeError):  # the loop is gone: nobody waits
            loop.call_soon_threadsafe(settle, result, error)

    pool.submit(call)
    try:
        result, error = await future
    except asyncio.CancelledError:
        pool.abandon()
        raise
    if error is not None:
        raise error
    return result


class _Ended(NamedTuple):
    result: Any
    error: BaseException | None


class WorkflowThread:
    """A `def` workflow in a thread of its own, run hand in hand with the deterministic loop.

    Exactly one of the two runs at any time. The thread hands over a primitive to wait for, the
    loop hands back its outcome; so a `def` workflow is deterministic as an `async` one is.
    """

    def __init__(self, function: Callable[[], Any], grace: float = 2.0) -> None:
        self._function = function
        self._grace = grace
        self._to_thread: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()
        self._to_loop: queue.SimpleQueue[Coroutine[Any, Any, Any] | _Ended] = queue.SimpleQueue()
        self._over = False
        self._told = 0
        self._thread: threading.Thread | None = None

    async def drive(self) -> Any:
        """Run the function to its end, awaiting its primitives on the loop."""
        context = contextvars.copy_context()
        self._thread = threading.Thread(
            target=context.run, args=(self._run,), name=WORKFLOW_THREAD, daemon=True
        )
        self._thread.start()
        message = self._to_loop.get()
        while not isinstance(message, _Ended):
            message = await self._answer(message)
        if message.error is not None:
            raise message.error
        return message.result

    async def _answer(
        self, primitive: Coroutine[Any, Any, Any]
    ) -> Coroutine[Any, Any, Any] | _Ended:
        try:
            value = await primitive
        except GeneratorExit:
            self._over = True  # the pass was closed by force, so the thread is left behind
            raise
        except BaseException as error:  # all of it belongs to the function in the thread
            return self._hand_over(None, error)
        return self._hand_over(value, None)

    def _hand_over(
        self, value: Any, error: BaseException | None
    ) -> Coroutine[Any, Any, Any] | _Ended:
        over = isinstance(error, Suspended)
        self._told += over
        if self._told > _TOLD_LIMIT:
            # It swallows what it is told: leave it where it waits.
            return self._leave(error)
        self._to_thread.put((value, error))
        try:
            return self._to_loop.get(timeout=self._grace if over else None)
        except queue.Empty:
            # It blocks on something that is none of ours: leave the thread behind.
            return self._leave(error)

    def _leave(self, error: BaseException | None) -> _Ended:
        self._over = True
        _LOG.warning("the thread of a def workflow does not end with its turn: it is left behind")
        return _Ended(None, error)

    def _run(self) -> None:
        try:
            ended = _Ended(self._function(), None)
        except BaseException as error:  # handed to the loop, which raises it there
            ended = _Ended(None, error)
        self._to_loop.put(ended)

    def wait(self, primitive: Coroutine[Any, Any, Any]) -> Any:
        """Called in the thread: wait for a primitive of the run."""
        if threading.current_thread() is not self._thread:
            primitive.close()
            raise UsageError(
                "a def workflow waits in one thread only: call steps, hooks and sleep from the "
                "workflow's own; for steps side by side write the workflow as async def"
            )
        if self._over:
            primitive.close()
            self._told += 1
            if self._told <= 2 * _TOLD_LIMIT:
                raise Suspended
        else:
            self._to_loop.put(primitive)
        value, error = self._to_thread.get()
        if error is not None:
            raise error
        return value
