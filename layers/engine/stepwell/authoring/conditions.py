"""Waiting for a condition that somebody has to look at: polling, with durable waits in between."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from stepwell.authoring.context import RUN, STEP, RunContext
from stepwell.authoring.decorators import AsyncStep, SyncStep
from stepwell.authoring.inline_steps import inline_step
from stepwell.authoring.step_options import checked_timeout
from stepwell.authoring.timers import now
from stepwell.core.backoff import Backoff, is_number
from stepwell.core.definitions import StepDefinition
from stepwell.core.durations import due_at, to_millis
from stepwell.core.ids import check_key
from stepwell.core.records import Millis
from stepwell.errors import ConditionNotMet, DefinitionError, DurationLike, UsageError

_DEFAULT_BACKOFF = Backoff(initial="5s", factor=1.5, max_delay="5m", jitter="none")


def wait_for_condition(
    check: Callable[..., Any],
    initial: Any,
    *,
    backoff: Backoff | DurationLike = _DEFAULT_BACKOFF,
    timeout: DurationLike | None = None,
    max_attempts: int | None = None,
    name: str | None = None,
    key: str | None = None,
) -> Any:
    """Look until a condition holds; await it in an `async` workflow, blocking in a `def` one.

    `check(state)` looks once and returns `(done, state)`: whether it holds, and what the next look
    is given; the first one is given `initial`. The last state is the result. Each look is a step:
    `check` is a plain function, or a declared step whose options then hold, so a look that raises
    is tried again as any step. Between looks the run waits durably, and costs storage only.

    `backoff` is a `Backoff` (a `RetryPolicy` is one), or one duration for all waits; by default
    5 s, growing by half up to 5 min. After `timeout` there is a last look, and after `max_attempts`
    looks there is no other: then it raises `ConditionNotMet`. Without either it goes on until the
    run has reached its limit of events: a look takes three.

    `name` is what is recorded, by default the function's own. With `key` the looks have identities
    of their own, whatever else the workflow waits for. Raises `DefinitionError` on a bad option,
    `UsageError` in a step or when `check` returns something else. Outside a run it looks and sleeps
    in plain time.
    """
    polling = _Polling(
        definition=_definition(check, name),
        backoff=_backoff(backoff),
        timeout=checked_timeout("wait_for_condition", timeout),
        most=_most(max_attempts),
        key=None if key is None else check_key("wait_for_condition", key),
    )
    if STEP.get() is not None:
        raise UsageError("wait_for_condition: a step cannot wait durably; wait in the workflow")
    run = RUN.get()
    if run is None:
        return _plainly(polling, initial)
    work = run.compose(polling.look_until_done(_InRun(run, polling), initial), polling.name)
    return run.wait(work) if run.blocking else work


class _Polling:
    """What a wait for a condition was asked to do."""

    def __init__(
        self,
        *,
        definition: StepDefinition,
        backoff: Backoff,
        timeout: Millis | None,
        most: int | None,
        key: str | None,
    ) -> None:
        self.definition = definition
        self.name = definition.name
        self.backoff = backoff
        self.key = key
        self._timeout = timeout
        self._most = most

    async def look_until_done(self, world: _InRun | _Outside, state: Any) -> Any:
        """Look, wait, and look again. Returns the last state."""
        deadline = None if self._timeout is None else world.now() + self._timeout
        looks = 0
        while True:
            looks += 1
            done, state = self._told(await world.look(state, looks))
            if done:
                return state
            if looks == self._most:
                raise ConditionNotMet(self.name, "attempts", looks, state)
            if deadline is not None and world.now() >= deadline:
                raise ConditionNotMet(self.name, "timeout", looks, state)
            due = world.now() + self.backoff.delay(looks, fraction=world.fraction())
            await world.sleep(due if deadline is None else min(due, deadline), looks)

    def _told(self, outcome: Any) -> tuple[bool, Any]:
        if isinstance(outcome, tuple | list) and len(outcome) == 2 and isinstance(outcome[0], bool):
            return outcome[0], outcome[1]
        raise UsageError(
            f"condition {self.name!r}: return (done, state), a bool and what the next look is given; "
            f"it returned {type(outcome).__name__}"
        )


class _InRun:
    """Looks as steps, and durable waits."""

    def __init__(self, run: RunContext, polling: _Polling) -> None:
        self._run = run
        self._polling = polling
        self._wait = f"{polling.name}.wait"
        self.now = run.now

    async def look(self, state: Any, number: int) -> Any:
        return await self._run.step(self._polling.definition, (state,), {}, self._key(number))

    async def sleep(self, due: Millis, number: int) -> None:
        await self._run.sleep(due, self._wait, self._key(number))

    def fraction(self) -> float:
        if self._polling.backoff.jitter == "none":
            return 0.0
        return int.from_bytes(self._run.random_bytes(self._wait)[:7], "big") / (1 << 56)

    def _key(self, number: int) -> str | None:
        return None if self._polling.key is None else f"{self._polling.key}#{number}"


class _Outside:
    """Looks as plain calls, and plain waits."""

    def __init__(self, polling: _Polling) -> None:
        self._function = polling.definition.function

    async def look(self, state: Any, _: int) -> Any:
        outcome = self._function(state)
        return await outcome if inspect.isawaitable(outcome) else outcome

    async def sleep(self, due: Millis, _: int) -> None:
        await asyncio.sleep(max(due - self.now(), 0) / 1000)

    def now(self) -> Millis:
        return due_at(now(), 0)

    def fraction(self) -> float:
        return 1.0


def _plainly(polling: _Polling, initial: Any) -> Any:
    work = polling.look_until_done(_Outside(polling), initial)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    return work


def _definition(check: Any, name: str | None) -> StepDefinition:
    if isinstance(check, AsyncStep | SyncStep):
        if name is not None:
            raise DefinitionError(f"{check!r} is recorded under its own name; leave name= out")
        return check.definition
    return inline_step(name or str(getattr(check, "__name__", "")), check)


def _backoff(backoff: Backoff | DurationLike) -> Backoff:
    if isinstance(backoff, Backoff):
        return backoff
    try:
        to_millis(backoff)
    except ValueError as error:
        raise DefinitionError(f"wait_for_condition: backoff: {error}") from None
    return Backoff(initial=backoff, factor=1, max_delay=backoff, jitter="none")


def _most(max_attempts: int | None) -> int | None:
    if max_attempts is not None and (not is_number(max_attempts, int) or max_attempts < 1):
        raise DefinitionError(
            f"wait_for_condition: max_attempts is a whole number from 1 up, not {max_attempts!r}"
        )
    return max_attempts
