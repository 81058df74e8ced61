"""How large one run may grow: it ends, loses nothing, and somebody is told before."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from stepwell import (
    LimitExceeded,
    RetryPolicy,
    RunFailed,
    StepFailed,
    hook,
    sleep,
    step,
    step_hook,
    workflow,
)
from stepwell.authoring.registry import registry
from stepwell.client import RunHandle
from stepwell.core.payload import Sizes
from stepwell.core.records import HookStatus, RunStatus
from stepwell.engine.endings import TurnEnd
from stepwell.engine.settings import Limits, Settings
from stepwell.errors import DefinitionError
from stepwell.testing import Environment
from tests.integration.histories import found, kinds

SMALL = Limits(events=40, bytes=40_000, steps=30)
#: Where one limit is tried the others must not be in its way.
ANY = 1_000_000


@step
async def note(number: int = 0, size: int = 0) -> str:
    return "x" * size


@step(dispatch="worker")
async def away(number: int) -> int:
    return number


@step(name="limits.once", at_most_once=True)
async def once(number: int) -> int:
    return number


def deploy(env: Environment, limits: Limits) -> None:
    """The same code, with other limits."""
    env._engine.settings = replace(env._engine.settings, limits=limits)


async def _waiting(name: str) -> None:
    await hook(name)


def failed(env: Environment, run: RunHandle[Any]) -> str:
    """The message of the error that a run ended with, which has to be ours."""
    header = env.get(run)
    assert (header.status, header.attention) == (RunStatus.FAILED, None)
    assert header.error is not None
    assert header.error.type == "stepwell.errors.LimitExceeded"
    with pytest.raises(RunFailed):
        env.result(run)
    return header.error.message


def drive(env: Environment, run: RunHandle[Any]) -> None:
    """Answer what is asked and let time pass, for far more rounds than any limit has room for."""
    env.run_until_idle()
    for _ in range(500):
        if env.get(run).status.terminal:
            return
        if waiting := env.hooks(run):
            env.resume_hook(waiting[0].token, "on")
        else:
            env.advance("1h")
    raise AssertionError(f"it goes on and on: {kinds(env, run)[-10:]}")


async def _steps() -> None:
    while True:
        await note()


async def _hooks() -> None:
    while True:
        await hook("more")


async def _timers() -> None:
    while True:
        await sleep("1h")


async def _delays() -> None:
    while True:
        try:
            async with asyncio.timeout(60):
                await asyncio.Event().wait()
        except TimeoutError:
            continue


async def _attempts() -> None:
    @step(retry=RetryPolicy(max_attempts=ANY, initial=60))
    async def never() -> None:
        raise ValueError

    await never()


async def _at_once() -> None:
    @step(retry=RetryPolicy(max_attempts=ANY, initial=0))
    async def never() -> None:
        raise ValueError

    await never()


async def _entries() -> None:
    @step
    async def ask_for_ever() -> None:
        for _ in range(ANY):
            await step_hook("more")

    await ask_for_ever()


async def _branches() -> None:
    while True:
        await asyncio.gather(*(note(n) for n in range(7)))


async def _dispatched() -> None:
    while True:
        await away(1)


LOOPS = [
    _steps, _hooks, _timers, _delays, _attempts, _at_once, _entries, _branches, _dispatched
]  # fmt: skip


@pytest.mark.parametrize("loop", LOOPS)
def test_a_run_that_never_ends_of_itself_fails_at_a_limit(loop: Callable[..., Any]) -> None:
    with Environment(limits=SMALL) as env:
        run = env.start(workflow(loop))
        drive(env, run)
        assert "one run, the limit is" in failed(env, run)
        history = kinds(env, run)
        assert history[-1] == "RunFailed"
        assert 25 < len(history) <= SMALL.events + 2
        assert env.next_timer(run) is None


@pytest.mark.parametrize(
    "many",
    [
        lambda: (note(n) for n in range(100)),
        lambda: (away(n) for n in range(22)),
        lambda: (once(n) for n in range(22)),
        lambda: (sleep("1h") for _ in range(22)),
        lambda: (hook("more") for _ in range(22)),
    ],
)
def test_nothing_begins_of_a_fan_out_that_has_no_room(many: Callable[[], Any]) -> None:
    @workflow
    async def flow() -> None:
        await asyncio.gather(*many())

    with Environment(limits=SMALL) as env:
        run = env.start(flow)
        env.run_until_idle()
        failed(env, run)
        assert kinds(env, run) == ["RunStarted", "RunFailed"]
        assert env.hooks() == ()
        assert env.attempts(run) == frozenset()


@pytest.mark.parametrize("kind", [note, away, once])
def test_a_fan_out_that_fits_completes(kind: Any) -> None:
    @workflow
    async def flow() -> int:
        return len(await asyncio.gather(*(kind(n) for n in range(19))))

    with Environment(limits=SMALL) as env:
        assert env.run(flow) == 19


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (Limits(events=11, bytes=ANY, steps=ANY), "12 events in one run, the limit is 11;"),
        (Limits(events=ANY, bytes=ANY, steps=10), "11 steps in one run, the limit is 10;"),
    ],
)
def test_the_error_says_what_was_limited_and_how_far_it_came(limits: Limits, message: str) -> None:
    with Environment(limits=limits) as env:
        run = env.start(workflow(_steps))
        env.run_until_idle()
        assert failed(env, run).startswith(message)
        assert len(found(env, run, "StepCompleted")) == 10


def test_a_history_of_few_events_with_much_in_them_ends_too() -> None:
    @workflow
    async def flow() -> None:
        while True:
            await note(size=1_000)

    with Environment(limits=Limits(events=ANY, bytes=20_000, steps=ANY)) as env:
        run = env.start(flow)
        env.run_until_idle()
        assert "bytes in one run, the limit is 20,000" in failed(env, run)
        assert 15 <= len(found(env, run, "StepCompleted")) <= 19


@pytest.mark.parametrize("colour", ["async", "def"])
def test_workflow_code_cannot_catch_it(colour: str) -> None:
    seen: list[BaseException] = []

    @workflow
    async def flow() -> str:
        try:
            await _steps()
        except BaseException as error:
            seen.append(error)
        try:
            await note()
        finally:
            return "caught"  # noqa: B012

    @step
    def plain() -> None: ...

    @workflow
    def plain_flow() -> str:
        try:
            while True:
                plain()
        except BaseException as error:
            seen.append(error)
        return "caught"

    with Environment(limits=SMALL) as env:
        run = env.start(flow if colour == "async" else plain_flow)
        env.run_until_idle()
        failed(env, run)
        assert not any(isinstance(error, LimitExceeded) for error in seen)


def test_open_hooks_are_closed_and_an_answer_that_came_first_is_recorded() -> None:
    with Environment(limits=SMALL) as env:

        @step
        async def answer() -> None:
            waiting = {each.name: each.token for each in (await env.client.list_hooks()).items}
            await env.client.resume_hook(waiting["first"], "promised")

        @workflow
        async def flow() -> None:
            tasks = [asyncio.create_task(_waiting(name)) for name in ("first", "second")]
            await sleep("1h")
            await answer()
            await asyncio.gather(*tasks, *(note(n) for n in range(40)))

        run = env.start(flow)
        env.run_until_idle()
        env.advance("1h")
        failed(env, run)
        [received] = found(env, run, "HookReceived")
        assert (received.name, received.payload) == ("first", '"promised"')
        [closed] = found(env, run, "HookClosed")
        assert closed.name == "second"
        rows = env.wait_for(env._local.store.load(run.id)).hooks
        assert {row.status for row in rows} == {HookStatus.RECEIVED, HookStatus.CLOSED}


@pytest.mark.parametrize("rounds", range(12))
def test_what_was_reported_in_the_meantime_is_recorded(rounds: int) -> None:
    ended: list[int] = []

    @step(dispatch="worker")
    async def carry(text: str) -> None: ...

    @step
    async def turns(number: int) -> None:
        for _ in range(number):
            await asyncio.sleep(0)
        ended.append(number)

    async def grow() -> None:
        await turns(0)
        try:
            await carry("x" * 2_000)  # it fails while the turn begins it
        except StepFailed:
            await asyncio.gather(*(note(n) for n in range(50)))

    @workflow
    async def flow() -> None:
        await asyncio.gather(grow(), turns(rounds))

    with Environment(limits=SMALL, sizes=Sizes(inline_limit=100, hard_limit=1_000)) as env:
        run = env.start(flow)
        env.run_until_idle()
        failed(env, run)
        assert len(found(env, run, "StepCompleted")) == len(ended)


def _waiting_above(env: Environment, flow: Any) -> RunHandle[Any]:
    run: RunHandle[Any] = env.start(flow)
    env.run_until_idle()
    assert env.get(run).status is RunStatus.SUSPENDED
    deploy(env, Limits(events=3, bytes=ANY, steps=3))
    return run


def test_a_run_above_a_limit_that_came_later_may_return() -> None:
    @workflow
    async def flow() -> str:
        for n in range(5):
            await note(n)
        answer: str = await hook("more")
        return answer

    with Environment() as env:
        run = _waiting_above(env, flow)
        env.resume_hook(env.hooks(run)[0].token, "done")
        assert env.result(run) == "done"


@pytest.mark.parametrize(
    "wish", [note, lambda: sleep("1h"), lambda: hook("again"), lambda: away(1)]
)
def test_a_run_above_a_limit_that_came_later_ends_at_its_next_wish(wish: Any) -> None:
    @workflow
    async def flow() -> None:
        for n in range(5):
            await note(n)
        await hook("more")
        await wish()

    with Environment() as env:
        run = _waiting_above(env, flow)
        env.resume_hook(env.hooks(run)[0].token, "done")
        failed(env, run)
        assert kinds(env, run)[-2:] == ["HookReceived", "RunFailed"]


def test_waiting_on_is_no_wish() -> None:
    @workflow
    async def flow() -> list[Any]:
        return await asyncio.gather(*(hook(name) for name in "abc"), sleep("2h"), away(1))

    with Environment() as env:
        run = env.start(flow)
        env.run_until_idle()
        deploy(env, Limits(events=1, bytes=1, steps=1))
        for waiting in env.hooks(run):
            env.resume_hook(waiting.token, 1)
        env.advance("2h")
        assert env.result(run) == [1, 1, 1, None, 1]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("call", range(1, 30))
def test_a_crash_anywhere_on_the_way_to_a_limit_ends_the_same(call: int, when: Any) -> None:
    @workflow
    async def flow() -> None:
        asking = asyncio.create_task(_waiting("open"))
        while True:
            await note()
            await sleep("1h")
        await asking

    with Environment(limits=Limits(events=12)) as env:
        env.crash_at(call, when)
        run = env.start(flow)
        env.run_until_idle()
        env.advance("24h")
        failed(env, run)
        assert kinds(env, run)[-2:] == ["HookClosed", "RunFailed"]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line.getMessage() for line in caplog.records if "near a limit" in line.getMessage()]


def test_the_turn_in_which_a_run_comes_near_to_a_limit_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @workflow
    async def flow() -> None:
        for _ in range(9):
            await sleep("1h")

    with Environment(limits=Limits(events=20)) as env:
        run = env.start(flow)
        told = []
        env.run_until_idle()
        for _ in range(9):
            env.advance("1h")
            told.append(len(warnings(caplog)))
        assert env.get(run).status is RunStatus.COMPLETED
        # The start and eight timers begun, seven of them over, are 16 events: 80 % of 20.
        assert told == [0, 0, 0, 0, 0, 0, 1, 1, 1]
        [line] = warnings(caplog)
        assert line.startswith(f"run {run.id} is near a limit: 16 of at most 20 events;")
        assert "go on as a new run with continue_as_new" in line


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (Limits(steps=10), "8 of at most 10 steps"),
        (Limits(bytes=10_000), "of at most 10000 bytes"),
        (Limits(events=10), "10 of at most 10 events"),
    ],
)
def test_each_limit_has_its_warning(
    caplog: pytest.LogCaptureFixture, limits: Limits, said: str
) -> None:
    @workflow
    async def flow() -> None:
        for n in range(8):
            await note(n, size=1_000)

    with Environment(limits=limits) as env:
        env.run(flow)
    [line] = warnings(caplog)
    assert said in line


def test_far_from_all_limits_nothing_is_said(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)

    @workflow
    async def flow() -> None:
        for n in range(7):
            await note(n, size=1_000)

    with Environment(limits=Limits(events=12, bytes=12_000, steps=10)) as env:
        env.run(flow)
    assert warnings(caplog) == []


def test_a_blocked_run_that_comes_near_to_a_limit_says_so_too(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def flow() -> None:
        await asyncio.gather(*(hook("q", key=str(n)) for n in range(4)))

    with Environment(limits=Limits(events=11)) as env:
        with registry.isolated():
            run = env.start(workflow(flow))
            env.run_until_idle()
        for waiting in env.hooks(run):
            env.resume_hook(waiting.token, 1)
        assert env.turns[-1] is TurnEnd.BLOCKED
        assert len(warnings(caplog)) == 1


@pytest.mark.parametrize("name", ["events", "bytes", "steps", "idle_hops"])
@pytest.mark.parametrize("value", [0, -1])
def test_a_limit_is_positive(name: str, value: int) -> None:
    with pytest.raises(DefinitionError, match=f"limit of {name}: {value}"):
        Limits(**{name: value})


def test_the_defaults_are_what_is_documented(env: Environment) -> None:
    limits = Settings(keyring=env._settings.keyring).limits
    assert limits == Limits(events=5_000, bytes=2_000_000, steps=4_000, idle_hops=20)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("call", range(1, 12))
def test_a_crash_while_its_hooks_are_closed_gives_the_code_no_way_out(call: int, when: Any) -> None:
    @workflow
    async def flow() -> str:
        asking = [asyncio.create_task(_waiting(f"q{n}")) for n in range(3)]
        await sleep("1h")
        try:
            await asyncio.gather(*asking, *(note(n) for n in range(50)))
        except Exception:
            return "a way out"
        return "done"

    with Environment(limits=SMALL) as env:
        run = env.start(flow)
        env.run_until_idle()
        env.crash_at(call, when)
        env.advance("1h")
        failed(env, run)
        assert kinds(env, run)[-4:] == [*["HookClosed"] * 3, "RunFailed"]


def test_what_was_withdrawn_takes_no_room() -> None:
    @workflow
    async def flow() -> None:
        for n in range(25):
            async with asyncio.timeout(60):
                await note(n)

    with Environment(limits=SMALL) as env:
        assert env.run(flow) is None
