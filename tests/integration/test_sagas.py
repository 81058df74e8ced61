"""Sagas: what a block did is undone, last first, when the block fails or the run is cancelled."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stepwell import (
    CompensationFailed,
    RetryPolicy,
    StepFailed,
    Suspend,
    continue_as_new,
    current,
    hook,
    saga,
    sleep,
    step,
    step_hook,
    workflow,
)
from stepwell.core.records import RunStatus
from stepwell.errors import DefinitionError, RunFailed, UsageError
from stepwell.testing import Environment
from tests.integration.histories import crashes_of, found

ONCE = RetryPolicy(max_attempts=1)
#: What was done, in order.
DONE: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    DONE.clear()


@step(name="sagas.release")
async def release(receipt: str, what: str) -> None:
    DONE.append(f"release {what} ({receipt})")


@step(name="sagas.reserve", compensate=release)
async def reserve(what: str) -> str:
    DONE.append(f"reserve {what}")
    return what.upper()


def unpack(box: int, n: int) -> None:
    DONE.append(f"unpack {box} of {n}")


@step(name="sagas.pack", compensate=unpack)
def pack(n: int) -> int:
    DONE.append(f"pack {n}")
    return 10 * n


@step(name="sagas.fail", retry=ONCE)
async def fail() -> None:
    raise OSError("down")


@workflow(name="sagas.trip")
async def trip(fails: bool = True) -> str:
    async with saga():
        await reserve("flight")
        await pack.aio(3)
        await reserve("hotel")
        if fails:
            await fail()
    return "booked"


UNDONE = [
    "reserve flight",
    "pack 3",
    "reserve hotel",
    "release hotel (HOTEL)",
    "unpack 30 of 3",
    "release flight (FLIGHT)",
]


def test_a_block_that_fails_is_undone_last_first(env: Environment) -> None:
    run = env.start(trip)
    env.run_until_idle()
    with pytest.raises(RunFailed, match=r"step 'sagas\.fail' failed: OSError: down"):
        env.result(run)
    assert DONE == UNDONE
    assert [each.step for each in found(env, run, "StepCompleted")][3:] == [
        "sagas.release:1",
        "unpack:1",
        "sagas.release:2",
    ]


def test_a_block_that_ends_well_runs_nothing(env: Environment) -> None:
    assert env.run(trip, fails=False) == "booked"
    assert UNDONE[:3] == DONE


def test_a_def_workflow_is_undone_too(env: Environment) -> None:
    @workflow
    def flow() -> None:
        with saga() as undo:
            pack(1)
            undo.add(unpack, 0, n=0)
            reserve("car")  # type: ignore[unused-coroutine]
            raise ValueError("no")

    with pytest.raises(RunFailed, match="ValueError: no"):
        env.run(flow)
    assert DONE[2:] == ["release car (CAR)", "unpack 0 of 0", "unpack 10 of 1"]


def test_a_crash_at_any_port_call_undoes_all_the_same() -> None:
    runs: list[Any] = []

    def scenario(env: Environment) -> None:
        DONE.clear()
        runs.append(env.start(trip))
        env.run_until_idle()
        env.advance("1h")

    for env in crashes_of(scenario):
        assert env.get(runs[-1]).status is RunStatus.FAILED
        assert list(dict.fromkeys(DONE)) == UNDONE


def test_a_cancelled_run_is_undone_and_stays_cancelled(env: Environment) -> None:
    @workflow
    async def flow() -> None:
        async with saga():
            await reserve("flight")
            await hook("go-on")

    @workflow
    def blocking() -> None:
        with saga():
            pack(1)
            hook("go-on")

    for each, undone in ((flow, "release flight (FLIGHT)"), (blocking, "unpack 10 of 1")):
        run = env.start(each)
        env.run_until_idle()
        env.cancel(run, "not wanted")
        env.run_until_idle()
        assert env.get(run).status is RunStatus.CANCELLED
        assert DONE[-1] == undone


def test_a_compensation_is_tried_again_over_turns(env: Environment) -> None:
    tries: list[int] = []

    @step(retry=RetryPolicy(initial="1h", jitter="none"))
    async def undo(result: None) -> None:
        tries.append(current.attempt)
        if len(tries) < 3:
            raise OSError("down")

    @step(compensate=undo)
    async def do() -> None: ...

    @workflow
    async def flow() -> None:
        async with saga():
            await do()
            await hook("go-on")

    run = env.start(flow)
    env.run_until_idle()
    env.cancel(run)
    env.run_until_idle()
    assert env.get(run).status is RunStatus.SUSPENDED
    env.advance("1d")
    assert env.get(run).status is RunStatus.CANCELLED
    assert tries == [1, 2, 3]


def test_a_second_cancel_does_not_stop_a_compensation(env: Environment) -> None:
    @step
    async def slow(result: None) -> None:
        DONE.append("undone")

    @step(compensate=slow)
    async def do() -> None: ...

    @workflow
    async def flow() -> str:
        async def branch() -> None:
            async with saga():
                await do()
                await hook("go-on")

        task = asyncio.create_task(branch())
        await sleep("1h")
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            return "cancelled"
        return "ended"

    run = env.start(flow)
    env.run_until_idle()
    env.advance("2h")
    assert env.result(run) == "cancelled"
    assert DONE == ["undone"]


def test_a_timeout_in_a_compensation_is_told_after_it(env: Environment) -> None:
    @step(retry=RetryPolicy(initial="1h", jitter="none"))
    async def undo(result: None) -> None:
        DONE.append("undo")
        if len(DONE) < 2:
            raise OSError("down")

    @step(compensate=undo)
    async def do() -> None: ...

    @workflow
    async def flow() -> str:
        try:
            async with asyncio.timeout(60), saga():
                await do()
                raise ValueError("no")
        except TimeoutError:
            return "late"
        except ValueError:
            return "no"

    run = env.start(flow)
    env.run_until_idle()
    env.advance("2h")
    assert env.result(run) == "late"
    assert DONE == ["undo", "undo"]


def test_errors_of_compensations_are_collected(env: Environment) -> None:
    @step(retry=ONCE)
    async def jam(result: int, n: int) -> None:
        DONE.append(f"jam {n}")
        raise OSError(f"jammed {n}")

    @step(compensate=jam)
    async def open_door(n: int) -> int:
        return n

    @workflow
    async def flow() -> list[str]:
        try:
            async with saga():
                await open_door(1)
                await reserve("flight")
                await open_door(2)
                raise ValueError("no")
        except CompensationFailed as error:
            return [type(error.original).__name__, repr(error.__cause__), *map(str, error.errors)]

    run = env.start(flow)
    env.run_until_idle()
    assert env.result(run) == [
        "ValueError",
        "ValueError('no')",
        "step 'jam' failed: OSError: jammed 2",
        "step 'jam' failed: OSError: jammed 1",
    ]
    assert DONE == ["reserve flight", "jam 2", "release flight (FLIGHT)", "jam 1"]


def test_a_run_that_could_not_be_undone_has_failed_though_it_was_cancelled(
    env: Environment,
) -> None:
    @step(retry=ONCE)
    async def jam(result: None) -> None:
        raise OSError("jammed")

    @step(compensate=jam)
    async def do() -> None: ...

    @workflow
    async def flow() -> None:
        async with saga():
            await do()
            await hook("go-on")

    run = env.start(flow)
    env.run_until_idle()
    env.cancel(run)
    env.run_until_idle()
    with pytest.raises(RunFailed, match="1 of the compensations failed: step 'jam' failed"):
        env.result(run)


def test_blocks_nest(env: Environment) -> None:
    @workflow
    async def flow(outer: bool) -> None:
        try:
            async with saga():
                await reserve("a")
                try:
                    async with saga():
                        await reserve("b")
                        raise ValueError("inner")
                except ValueError:
                    DONE.append("goes on")
                async with saga():
                    await reserve("c")
                await reserve("d")
                if outer:
                    raise ValueError("outer")
        except ValueError:
            pass

    inner = ["reserve a", "reserve b", "release b (B)", "goes on", "reserve c", "reserve d"]
    env.run(flow, False)
    assert inner == DONE
    DONE.clear()
    env.run(flow, True)
    assert [*inner, "release d (D)", "release c (C)", "release a (A)"] == DONE


def test_branches_are_undone_in_reverse_order_of_their_ends(env: Environment) -> None:
    @step(compensate=lambda result, what, rounds: DONE.append(f"undo {what}"))
    async def reserved(what: str, rounds: int) -> str:
        for _ in range(rounds):
            await asyncio.sleep(0)
        DONE.append(f"do {what}")
        return what

    @workflow
    async def flow() -> None:
        async with saga():
            await asyncio.gather(reserved("a", 9), reserved("b", 3), reserved("c", 6))
            raise ValueError("no")

    with pytest.raises(RunFailed):
        env.run(flow)
    assert DONE == ["do b", "do c", "do a", "undo a", "undo c", "undo b"]


def test_what_other_branches_still_do_is_waited_for_and_undone(env: Environment) -> None:
    @step(compensate=lambda result: DONE.append("undone"))
    async def slow() -> None:
        for _ in range(20):
            await asyncio.sleep(0)
        DONE.append("done")

    @workflow
    async def flow() -> None:
        async with saga():
            await asyncio.gather(slow(), fail())

    with pytest.raises(RunFailed, match="OSError: down"):
        env.run(flow)
    assert DONE == ["done", "undone"]


def test_tickets_and_maps_are_undone(env: Environment) -> None:
    @workflow
    async def flow() -> None:
        async with saga():
            await reserve.map(["a", "b"])
            ticket = reserve.submit("c")
            await ticket
            raise ValueError("no")

    with pytest.raises(RunFailed):
        env.run(flow)
    assert DONE[-3:] == ["release c (C)", "release b (B)", "release a (A)"]


def test_a_step_with_a_key_is_undone_once(env: Environment) -> None:
    @workflow
    async def flow() -> None:
        async with saga() as undo:
            keyed = reserve.with_options(key="k")
            await asyncio.gather(keyed("a"), keyed("a"))
            undo.add(release.with_options(key="other"), "R", "x")
            raise ValueError("no")

    run = env.start(flow)
    env.run_until_idle()
    assert DONE == ["reserve a", "release x (R)", "release a (A)"]
    assert found(env, run, "StepCompleted")[1].step == "sagas.release=other"


def test_outside_of_a_saga_nothing_is_undone(env: Environment) -> None:
    @workflow
    async def flow() -> None:
        await reserve("a")
        async with saga():
            pass
        await reserve("b")
        raise ValueError("no")

    with pytest.raises(RunFailed):
        env.run(flow)
    assert DONE == ["reserve a", "reserve b"]


def test_a_suspension_undoes_nothing(env: Environment) -> None:
    @workflow
    async def flow() -> str:
        async with saga():
            await reserve("a")
            await sleep("1h")
        return "done"

    run = env.start(flow)
    env.run_until_idle()
    env.advance("2h")
    assert env.result(run) == "done"
    assert DONE == ["reserve a"]


def test_sagas_are_used_by_the_rules(env: Environment) -> None:
    @workflow
    async def wrong_word() -> None:
        with saga():
            pass

    @workflow
    def wrong_word_in_def() -> None:
        asyncio.run(saga().__aenter__())

    @workflow
    async def twice() -> None:
        block = saga()
        async with block:
            pass
        async with block:
            pass

    @workflow
    async def late() -> None:
        async with saga() as undo:
            pass
        undo.add(unpack, 1, 1)

    for each, words in (
        (wrong_word, "write async with saga"),
        (wrong_word_in_def, "write with saga"),
        (twice, "one saga serves one block"),
        (late, "inside of its block"),
    ):
        with pytest.raises(RunFailed, match=words):
            env.run(each)
    with pytest.raises(UsageError, match="inside of its block"):
        saga().add(unpack, 1, 1)


@pytest.mark.parametrize("compensate", [lambda: None, lambda a, b, c, d: None, "undo", 3])
def test_a_compensation_takes_result_and_arguments(compensate: Any) -> None:
    with pytest.raises(DefinitionError, match="compensation of step 'do'"):

        @step(compensate=compensate)
        async def do(n: int, m: int) -> None: ...


def test_outside_a_run_a_saga_undoes_plain_calls() -> None:
    async def flow() -> None:
        async with saga() as undo:
            await reserve("a")
            await pack.aio(1)
            undo.add(release, "R", "x")
            raise ValueError("no")

    def blocking() -> None:
        with saga() as undo:
            pack(2)
            undo.add(release, "R", "y")
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        asyncio.run(flow())
    assert DONE[2:] == ["release x (R)", "unpack 10 of 1", "release a (A)"]
    DONE.clear()
    with pytest.raises(ValueError, match="no"):
        blocking()
    assert DONE == ["pack 2", "release y (R)", "unpack 20 of 2"]


def test_the_error_of_a_step_can_be_caught_in_the_block(env: Environment) -> None:
    @workflow
    async def flow() -> str:
        async with saga():
            await reserve("a")
            try:
                await fail()
            except StepFailed:
                return "goes on"
        return ""

    assert env.run(flow) == "goes on"
    assert DONE == ["reserve a"]


def test_items_that_a_failed_map_drops_hold_nothing_up(env: Environment) -> None:
    @step(compensate=release, retry=ONCE)
    async def order(what: str) -> str:
        if what == "b":
            raise OSError("none left")
        if what == "c":
            await step_hook("never")
        return what.upper()

    @workflow
    async def flow() -> None:
        async with saga():
            await order.map(["a", "b", "c"])

    with pytest.raises(RunFailed, match="none left"):
        env.run(flow)
    assert DONE == ["release a (A)"]


def test_a_call_with_a_key_that_is_cancelled_holds_nothing_up(env: Environment) -> None:
    @step(compensate=release)
    async def slow(what: str) -> str:
        await step_hook("never")
        return what

    @workflow
    async def flow() -> None:
        async with saga():
            task = asyncio.create_task(slow.with_options(key="k")("a"))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            raise ValueError("no")

    with pytest.raises(RunFailed, match="ValueError: no"):
        env.run(flow)
    assert DONE == []


@pytest.mark.parametrize("mended", [False, True])
def test_a_retry_does_again_what_was_undone(env: Environment, mended: bool) -> None:
    works: list[bool] = []

    @step(name="pay", retry=ONCE)
    async def pay() -> str:
        if not works:
            raise OSError("declined")
        return "paid"

    @workflow
    async def flow() -> str:
        await reserve("ticket")
        async with saga():
            await reserve("flight")
            return await pay()

    run = env.start(flow)
    env.run_until_idle()
    assert DONE == ["reserve ticket", "reserve flight", "release flight (FLIGHT)"]
    DONE.clear()
    if mended:
        works.append(True)
    env.retry(run)
    env.run_until_idle()
    if mended:
        assert env.result(run) == "paid"
        assert DONE == ["reserve flight"]
    else:
        assert env.get(run).status is RunStatus.FAILED
        assert DONE == ["reserve flight", "release flight (FLIGHT)"]


def test_a_retry_leaves_what_was_undone_on_the_way_to_something_else(env: Environment) -> None:
    works: list[bool] = []

    @step(name="pay", retry=ONCE)
    async def pay() -> str:
        if not works:
            raise OSError("declined")
        return "paid"

    @workflow
    async def flow() -> str:
        try:
            async with saga():
                await reserve("flight")
                await fail()
        except StepFailed:
            pass
        await sleep("1h")
        return await pay()

    run = env.start(flow)
    env.run_until_idle()
    env.advance("1h")
    DONE.clear()
    works.append(True)
    env.retry(run)
    env.run_until_idle()
    assert env.result(run) == "paid"
    assert DONE == []


def test_code_that_waits_for_input_undoes_nothing(env: Environment) -> None:
    @workflow
    async def flow() -> str:
        async with saga():
            await reserve("a")
            if "go" not in current.run.inbox:
                raise Suspend("go?")
        return "done"

    run = env.start(flow)
    env.run_until_idle()
    assert DONE == ["reserve a"]
    env.wait_for(env.client.put_inbox(run.id, "go", True))
    env.run_until_idle()
    assert env.result(run) == "done"
    assert DONE == ["reserve a"]


def test_code_that_goes_on_as_a_new_run_undoes_nothing(env: Environment) -> None:
    @workflow
    async def flow(turn: int) -> str:
        async with saga():
            await reserve(f"{turn}")
            if turn == 1:
                continue_as_new(2)
        return "done"

    run = env.start(flow, 1)
    env.run_until_idle()
    assert env.result(run) == "done"
    assert DONE == ["reserve 1", "reserve 2"]


def test_outside_a_run_waiting_for_input_undoes_nothing() -> None:
    async def flow() -> None:
        async with saga():
            await reserve("a")
            raise Suspend("go?")

    with pytest.raises(Suspend):
        asyncio.run(flow())
    assert DONE == ["reserve a"]


@pytest.mark.parametrize("fails", [False, True])
def test_items_of_a_dispatched_map_are_undone(env: Environment, fails: bool) -> None:
    @step(compensate=release, retry=ONCE, dispatch="worker")
    async def order(what: str) -> str:
        if fails and what == "c":
            raise OSError("none left")
        return what.upper()

    @workflow
    async def flow() -> None:
        async with saga():
            await order.map(["a", "b", "c"], max_concurrency=1)
            raise ValueError("no")

    run = env.start(flow)
    env.run_until_idle()
    env.advance("1h")
    with pytest.raises(RunFailed, match="none left" if fails else "ValueError: no"):
        env.result(run)
    undone = ["release b (B)", "release a (A)"]
    assert (undone if fails else ["release c (C)", *undone]) == DONE
