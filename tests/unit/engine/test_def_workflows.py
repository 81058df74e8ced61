"""`def` workflows: blocking calls, the identities of their `async` twins, threads that go away."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import threading
from typing import Any

import pytest

from stepwell import RetryPolicy, hook, now, random, sleep, step, uuid4, workflow
from stepwell.authoring.registry import registry
from stepwell.core import events as e
from stepwell.core.records import RunStatus
from stepwell.core.state import fold
from stepwell.engine.replay import Replay
from stepwell.errors import HookTimeout, RunFailed, StepFailed, Suspended, UsageError
from stepwell.testing import Environment
from stepwell.testing.laws import check_replay, check_run

EFFECTS: list[Any] = []

with registry.isolated():

    @step
    def double(n: int) -> int:
        EFFECTS.append(n)
        return 2 * n

    @step
    async def negate(n: int) -> int:
        EFFECTS.append(-n)
        return -n

    @step(retry=RetryPolicy(max_attempts=1))
    def broken() -> None:
        raise ZeroDivisionError("broken")


@pytest.fixture(autouse=True)
def _no_effects() -> None:
    EFFECTS.clear()


def trace(env: Environment, run: Any, flow: Any) -> list[str]:
    check_run(env, run)
    return check_replay([each.event for each in env.history(run)], flow.definition, run.id)


def test_a_def_workflow_asks_for_what_its_async_twin_asks_for(stepwell_env: Environment) -> None:
    @workflow
    async def awaited(n: int) -> list[Any]:
        first = await double.aio(n)
        await sleep("1h")
        try:
            await broken.aio()
        except StepFailed as error:
            found = error.type
        try:
            answer = await hook("ask", timeout="1d")
        except HookTimeout:
            answer = "none"
        return [first, found, answer, await negate(n), await double.aio(n + 1)]

    @workflow
    def blocking(n: int) -> list[Any]:
        first = double(n)
        sleep("1h")
        try:
            broken()
        except StepFailed as error:
            found = error.type
        try:
            answer = hook("ask", timeout="1d")
        except HookTimeout:
            answer = "none"
        return [first, found, answer, negate(n), double(n + 1)]

    runs = [stepwell_env.start(awaited, 4), stepwell_env.start(blocking, 4)]
    stepwell_env.advance("2d")
    results = [stepwell_env.result(run) for run in runs]
    assert results == [[8, "ZeroDivisionError", "none", -4, 10]] * 2
    histories = [
        [(each.event.type, getattr(each.event, "step", None)) for each in stepwell_env.history(run)]
        for run in runs
    ]
    assert histories[0] == histories[1]
    expected = ["double:1", "sleep:1", "broken:1", "ask:1", "negate:1", "double:2"]
    assert trace(stepwell_env, runs[0], awaited) == expected
    assert trace(stepwell_env, runs[1], blocking) == expected


def test_time_and_randomness_replay_in_a_def_workflow(stepwell_env: Environment) -> None:
    @workflow
    def flow() -> bool:
        before = [str(now()), str(uuid4()), random()]
        seen.append(before)
        hook("go")
        return all(each == seen[0] for each in seen)

    seen: list[Any] = []
    run = stepwell_env.start(flow)
    stepwell_env.run_until_idle()
    stepwell_env.advance("1h")
    [open_hook] = stepwell_env.hooks(run)
    stepwell_env.resume_hook(open_hook.token)
    assert stepwell_env.result(run) is True
    assert len(seen) == 2


def test_suspension_unwinds_the_thread_and_its_cleanup_does_nothing(
    stepwell_env: Environment, caplog: pytest.LogCaptureFixture
) -> None:
    reached: list[str] = []

    @workflow
    def flow() -> str:
        try:
            return str(hook("go"))
        finally:
            reached.append("finally")
            for primitive in (lambda: double(7), lambda: negate(7), lambda: sleep("1h")):
                try:
                    primitive()
                except Suspended:
                    reached.append("refused")

    run = stepwell_env.start(flow)
    stepwell_env.run_until_idle()
    assert reached == ["finally", "refused", "refused", "refused"]
    assert EFFECTS == []
    assert [each.event.type for each in stepwell_env.history(run)] == ["RunStarted", "HookOpened"]
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_bare_except_is_named_and_cannot_end_the_run(
    stepwell_env: Environment, caplog: pytest.LogCaptureFixture
) -> None:
    def careless() -> str:
        try:
            return str(hook("go"))
        except BaseException:
            return "swallowed"

    @workflow
    def flow() -> str:
        return careless()

    run = stepwell_env.start(flow)
    stepwell_env.run_until_idle()
    assert stepwell_env.get(run).status is RunStatus.SUSPENDED
    assert "careless" in caplog.text
    [open_hook] = stepwell_env.hooks(run)
    stepwell_env.resume_hook(open_hook.token, "yes")
    assert stepwell_env.result(run) == "yes"


def test_a_thread_that_asks_for_ever_is_left_behind(
    stepwell_env: Environment, caplog: pytest.LogCaptureFixture
) -> None:
    @workflow
    def flow() -> str:
        try:
            return str(hook("go"))
        except BaseException:
            while True:
                with contextlib.suppress(BaseException):
                    double(1)

    run = stepwell_env.start(flow)
    stepwell_env.run_until_idle()
    assert stepwell_env.get(run).status is RunStatus.SUSPENDED
    assert "does not end" in caplog.text
    assert EFFECTS == []
    [open_hook] = stepwell_env.hooks(run)
    stepwell_env.resume_hook(open_hook.token, "yes")
    assert stepwell_env.result(run) == "yes"


def test_a_thread_that_will_not_unwind_is_left_behind_and_can_do_nothing_later() -> None:
    let_go = threading.Event()
    later: list[str] = []
    ended = threading.Event()

    @workflow
    def flow() -> str:
        try:
            return str(hook("go"))
        finally:
            let_go.wait()
            try:
                double(1)
            except Suspended:
                later.append("refused")
            finally:
                ended.set()

    definition = flow.definition
    started = e.RunStarted(
        at=1, workflow="flow", version="1", seed="s", input=definition.arguments.encode((), {})
    )
    replay = Replay("a-run", definition, fold([started]), {}, grace=0.01)
    replay.run([started])
    assert replay.asked == ["go:1"]
    replay.unwind()
    assert not ended.is_set()
    let_go.set()
    assert ended.wait(10)
    assert later == ["refused"]
    assert replay.asked == ["go:1"]
    assert EFFECTS == []


def test_an_exception_of_a_def_workflow_fails_its_run(stepwell_env: Environment) -> None:
    @workflow
    def flow() -> None:
        try:
            broken()
        except StepFailed as error:
            raise LookupError("nothing there") from error

    run = stepwell_env.start(flow)
    stepwell_env.run_until_idle()
    with pytest.raises(RunFailed) as caught:
        stepwell_env.result(run)
    failure = caught.value.failure
    assert (failure.type, failure.message) == ("LookupError", "nothing there")
    assert failure.cause is not None
    assert failure.cause.type == "stepwell.errors.StepFailed"
    check_run(stepwell_env, run)


def test_cancelling_reaches_the_thread_and_its_cleanup_is_recorded(
    stepwell_env: Environment,
) -> None:
    @workflow
    def flow() -> None:
        try:
            hook("go")
        except asyncio.CancelledError:
            double(21)
            raise

    run = stepwell_env.start(flow)
    stepwell_env.run_until_idle()
    stepwell_env.cancel(run, "no more")
    assert stepwell_env.get(run).status is RunStatus.CANCELLED
    assert EFFECTS == [21]
    assert trace(stepwell_env, run, flow) == ["go:1", "double:1"]


@pytest.mark.parametrize(
    ("colour", "told"),
    [
        ("def step in async", "write await double.aio(...)"),
        ("aio in def", "without .aio and await"),
        ("other thread", "waits in one thread only"),
    ],
)
def test_the_wrong_colour_is_a_named_error(
    colour: str, told: str, stepwell_env: Environment
) -> None:
    async def plain_call() -> int:
        return double(1)

    def awaited_call() -> None:
        double.aio(1)

    def from_another_thread() -> None:
        errors: list[UsageError] = []

        def elsewhere() -> None:
            try:
                double(1)
            except UsageError as error:
                errors.append(error)

        context = contextvars.copy_context()
        other = threading.Thread(target=context.run, args=(elsewhere,))
        other.start()
        other.join()
        raise errors[0]

    body: Any = {
        "def step in async": plain_call,
        "aio in def": awaited_call,
        "other thread": from_another_thread,
    }[colour]
    run = stepwell_env.start(workflow(body))
    stepwell_env.run_until_idle()
    with pytest.raises(RunFailed) as caught:
        stepwell_env.result(run)
    assert caught.value.failure.type == "stepwell.errors.UsageError"
    assert told in caught.value.failure.message
    assert EFFECTS == []


def test_two_hundred_runs_leave_no_thread_behind(stepwell_env: Environment) -> None:
    @workflow
    def flow(n: int) -> int:
        found = double(n)
        sleep("1h")
        return found

    before = set(threading.enumerate())
    runs = [stepwell_env.start(flow, n) for n in range(200)]
    stepwell_env.advance("2h")
    assert [stepwell_env.result(run) for run in runs] == [2 * n for n in range(200)]
    left = [
        each for each in set(threading.enumerate()) - before if each.name == "stepwell-workflow"
    ]
    for each in left:
        each.join(10)
    assert not any(each.is_alive() for each in left)
