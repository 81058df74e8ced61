"""Threads for `def` functions: a pool for steps, and a hand-over for `def` workflows.

All threads are daemons: an abandoned step must not keep a process alive.
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from stepwell.errors import Suspended


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
        """A call will perhaps never return: its thread no longer counts towards the limit."""
        with self._lock:
            self._limit += 1

    def _work(self) -> None:
        while True:
            self._calls.get()()
            with self._lock:
                # A waiting call takes this thread at once, so it was not idle.
                if self._calls.empty():
                    self._idle += 1


@dataclass(frozen=True, slots=True)
class _Ended:
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

    async def drive(self) -> Any:
        """Run the function to its end, awaiting its primitives on the loop."""
        context = contextvars.copy_context()
        threading.Thread(
            target=context.run, args=(self._run,), name="stepwell-workflow", daemon=True
        ).start()
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
        except BaseException as error:  # all of it belongs to the function in the thread
            return self._hand_over(None, error)
        return self._hand_over(value, None)

    def _hand_over(
        self, value: Any, error: BaseException | None
    ) -> Coroutine[Any, Any, Any] | _Ended:
        self._to_thread.put((value, error))
        if not isinstance(error, (Suspended, asyncio.CancelledError)):
            return self._to_loop.get()
        try:
            return self._to_loop.get(timeout=self._grace if isinstance(error, Suspended) else None)
        except queue.Empty:
            # It blocks on something that is none of ours: leave the thread behind.
            self._over = True
            return _Ended(None, error)

    def _run(self) -> None:
        try:
            ended = _Ended(self._function(), None)
        except BaseException as error:  # handed to the loop, which raises it there
            ended = _Ended(None, error)
        self._to_loop.put(ended)

    def wait(self, primitive: Coroutine[Any, Any, Any]) -> Any:
        """Called in the thread: wait for a primitive of the run."""
        if self._over:
            primitive.close()
            raise Suspended
        self._to_loop.put(primitive)
        value, error = self._to_thread.get()
        if error is not None:
            raise error
        return value
