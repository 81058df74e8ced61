"""Child runs: started once, waited for as long as it takes, ended when nobody wants them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel

from stepwell import (
    ChildCancelled,
    ChildError,
    ChildFailed,
    ChildNotFound,
    ChildNotStarted,
    ChildTooDeep,
    RetryPolicy,
    current,
    hook,
    sleep,
    start_child,
    step,
    workflow,
)
from stepwell.client import RunHandle
from stepwell.core.ids import child_run_id
from stepwell.core.messages import ChildReported, Wake
from stepwell.core.payload import codec
from stepwell.core.records import RunStatus
from stepwell.engine.settings import Limits
from stepwell.errors import DefinitionError, PayloadError, RunFailed, UsageError
from stepwell.testing import Environment
from tests.integration.histories import found, kinds


class Order(BaseModel):
    number: int
    parts: tuple[str, ...] = ()


@step(name="kid.pack")
async def pack(number: int) -> int:
    return 2 * number


@workflow(name="kid.ship")
async def ship(order: Order) -> Order:
    return Order(number=await pack(order.number), parts=order.parts)


@workflow(name="kid.wait_a_year")
async def wait_a_year(what: str) -> str:
    await sleep("365d")
    return what


@workflow(name="kid.ask")
async def ask() -> Any:
    return await hook("question")


def run_of(env: Environment, run_id: str) -> RunHandle[Any]:
    return RunHandle(env.client, run_id, codec(Any, "result"))


def child_of(env: Environment, run: RunHandle[Any], child: str) -> RunHandle[Any]:
    return run_of(env, child_run_id(run.id, child))


def others(env: Environment, run: RunHandle[Any]) -> list[RunStatus]:
    page = env.wait_for(env.client.list_runs(limit=100))
    return [each.status for each in page.items if each.run_id != run.id]


def test_a_child_gives_its_result_by_its_type(env: Environment) -> None:
    async def buys() -> str:
        order = await start_child(ship, Order(number=7, parts=("a",)))
        return f"{order.number} {order.parts}"

    run = env.start(workflow(buys))
    env.run_until_idle()
    assert env.result(run) == "14 ('a',)"
    assert kinds(env, run) == ["RunStarted", "ChildStarted", "ChildEnded", "RunCompleted"]
    header = env.get(child_of(env, run, "kid.ship:1"))
    assert header.parent is not None
    assert (header.parent.run_id, header.parent.child, header.parent.depth) == (
        run.id,
        "kid.ship:1",
        1,
    )


def test_a_def_workflow_blocks_on_its_children(env: Environment) -> None:
    def buys() -> list[Any]:
        handle: Any = start_child.with_options(wait=False)(wait_a_year, "late")
        first: Any = start_child(ship, Order(number=1))
        return [first.number, handle.status(), handle.result(), handle.status()]

    run = env.start(workflow(buys))
    assert env.run_to_end(run) == [2, "running", "late", "completed"]


def test_a_child_that_waits_a_year_wakes_its_parent(env: Environment) -> None:
    async def patient() -> str:
        return await start_child(wait_a_year, "done")

    run = env.start(workflow(patient))
    env.run_until_idle()
    assert [(each.kind, each.id) for each in env.get(run).waiting] == [
        ("child", "kid.wait_a_year:1")
    ]
    turns = len(env.turns)
    env.advance("364d")
    assert len(env.turns) == turns
    env.advance("1d")
    assert env.result(run) == "done"


def test_a_grandchild_wakes_all_above_it(env: Environment) -> None:
    @workflow(name="kid.middle")
    async def middle() -> str:
        return f"{await start_child(wait_a_year, 'low')} middle"

    async def top() -> str:
        return f"{await start_child(middle)} top"

    run = env.start(workflow(top))
    assert env.run_to_end(run) == "low middle top"


def test_a_start_by_name_is_checked_against_what_is_published(env: Environment) -> None:
    async def by_name() -> Any:
        return await start_child("kid.ship", order={"number": 4})

    async def unfit() -> Any:
        return await start_child("kid.ship", order={"numbers": 4})

    async def unknown() -> Any:
        return await start_child("kid.nowhere")

    env.wait_for(env.client.publish([ship.definition]))
    assert env.run(workflow(by_name)) == {"number": 8, "parts": []}
    for function, kind in ((unfit, "InputRejected"), (unknown, "WorkflowNotFound")):
        run = env.start(workflow(function))
        env.run_until_idle()
        error = env.get(run).error
        assert error is not None
        assert error.type == "stepwell.errors.ChildNotStarted"
        assert error.cause is not None
        assert error.cause.type == f"stepwell.errors.{kind}"
        assert others(env, run).count(RunStatus.PENDING) == 0


def test_bad_arguments_and_places_are_named_at_once(env: Environment) -> None:
    @step(name="kid.tries")
    async def tries() -> None:
        await start_child(ship, Order(number=1))

    async def wrong(what: str) -> None:
        match what:
            case "type":
                await start_child(ship, 7)  # type: ignore[arg-type]
            case "missing":
                await start_child(ship)  # type: ignore[call-arg]
            case "positional":
                await start_child("kid.ship", 7)  # type: ignore[call-overload]
            case "none":
                await start_child(ship.definition)  # type: ignore[call-overload]
            case "twice":
                start = start_child.with_options(key="k")
                await start(ship, Order(number=1))
                await start(ship, Order(number=1))
            case "step":
                await tries()

    flow = workflow(wrong)
    for what, told in {
        "type": "PayloadError",
        "missing": "missing a required argument",
        "positional": "by name",
        "none": "takes a @workflow or its name",
        "twice": "is used twice",
        "step": "a step cannot do this",
    }.items():
        run = env.start(flow, what)
        env.run_until_idle()
        assert told in str(env.get(run).error)
        assert len(found(env, run, "ChildStarted")) == (what == "twice")
    with pytest.raises(UsageError, match="there is no run here"):
        start_child(ship, Order(number=1))
    with pytest.raises(DefinitionError, match="on_parent_close"):
        start_child.with_options(on_parent_close="leave")  # type: ignore[call-overload]
    with pytest.raises(DefinitionError, match="child key"):
        start_child.with_options(key="")


def test_options_never_meet_the_arguments_of_the_child(env: Environment) -> None:
    @workflow(name="kid.named_alike")
    async def named_alike(wait: int, key: str, on_parent_close: str) -> str:
        return f"{wait} {key} {on_parent_close}"

    async def calls() -> str:
        start = start_child.with_options(key="mine")
        return await start(named_alike, wait=1, key="k", on_parent_close="c")

    run = env.start(workflow(calls))
    env.run_until_idle()
    assert env.result(run) == "1 k c"
    assert found(env, run, "ChildStarted")[0].child == "kid.named_alike@mine"


def test_a_child_that_fails_keeps_its_causes_over_the_levels(env: Environment) -> None:
    @step(name="kid.breaks")
    async def breaks() -> None:
        raise FileNotFoundError("gone")

    @workflow(name="kid.low")
    async def low() -> None:
        try:
            await breaks.with_options(retry=None)()
        except Exception as error:
            raise ValueError("low") from error

    @workflow(name="kid.between")
    async def between() -> None:
        await start_child(low)

    async def caught() -> list[str]:
        try:
            await start_child(between)
        except ChildFailed as error:
            names = [error.child_id, error.name, error.type]
            cause = error.cause
            while cause is not None:
                names.append(cause.type)
                cause = cause.cause
            return names
        return []

    run = env.start(workflow(caught))
    env.run_to_end(run)
    assert env.result(run) == [
        "kid.between:1",
        "kid.between",
        "stepwell.errors.ChildFailed",
        "ValueError",
        "stepwell.errors.StepFailed",
        "FileNotFoundError",
    ]


def test_an_uncaught_failure_fails_the_parent(env: Environment) -> None:
    @workflow(name="kid.fails")
    async def fails() -> None:
        raise ValueError("no")

    async def careless() -> None:
        await start_child(fails)

    run = env.start(workflow(careless))
    env.run_until_idle()
    with pytest.raises(RunFailed, match=r"child .kid\.fails."):
        env.result(run)


def test_a_cancelled_child_raises_in_its_parent(env: Environment) -> None:
    async def told() -> Any:
        try:
            await start_child(ask)
        except ChildCancelled as error:
            return [error.child_id, error.reason]

    run = env.start(workflow(told))
    env.run_until_idle()
    env.cancel(child_of(env, run, "kid.ask:1"), "by hand")
    assert env.result(run) == ["kid.ask:1", "by hand"]


@pytest.mark.parametrize("ends", ["returns", "raises", "is cancelled"])
def test_the_end_of_a_parent_cancels_its_open_children_but_for_abandoned_ones(
    env: Environment, ends: str
) -> None:
    async def leaves() -> None:
        await start_child.with_options(wait=False)(ask)
        await start_child.with_options(wait=False, on_parent_close="abandon")(ask)
        if ends == "raises":
            raise ValueError
        if ends == "is cancelled":
            await sleep("1h")

    run = env.start(workflow(leaves))
    env.run_until_idle()
    if ends == "is cancelled":
        env.cancel(run)
    assert env.get(run).status.terminal
    assert env.get(child_of(env, run, "kid.ask:1")).status is RunStatus.CANCELLED
    kept = child_of(env, run, "kid.ask:2")
    assert env.get(kept).status is RunStatus.SUSPENDED
    [question] = env.hooks()
    env.resume_hook(question.token, 7)
    assert env.result(kept) == 7


def test_a_timeout_around_a_child_cancels_it(env: Environment) -> None:
    async def hurries() -> str:
        try:
            async with asyncio.timeout(60):
                await start_child(ask)
        except TimeoutError:
            await sleep("1d")
            return "went on"
        return "answered"

    run = env.start(workflow(hurries))
    env.run_until_idle()
    env.advance("1m")
    child = child_of(env, run, "kid.ask:1")
    assert env.get(child).status is RunStatus.CANCELLED
    assert not env.get(run).status.terminal
    assert env.run_to_end(run) == "went on"
    assert [each.status for each in found(env, run, "ChildEnded")] == ["cancelled"]


def test_who_stops_waiting_through_a_handle_does_not_cancel(env: Environment) -> None:
    async def looks_in() -> Any:
        handle = await start_child.with_options(wait=False)(ask)
        try:
            await asyncio.wait_for(handle.result(), 60)
        except TimeoutError:
            return [await handle.result(), await handle.result(), handle.status()]

    run = env.start(workflow(looks_in))
    env.run_until_idle()
    env.advance("2m")
    [question] = env.hooks()
    env.resume_hook(question.token, 1)
    assert env.result(run) == [1, 1, "completed"]


def test_a_handle_cancels_once_and_durably(env: Environment) -> None:
    async def changes_its_mind() -> Any:
        handle = await start_child.with_options(wait=False)(ask)
        await handle.cancel("not needed")
        await handle.cancel("again")
        try:
            await handle.result()
        except ChildCancelled as error:
            await handle.cancel("too late")
            return [error.reason, error.run_id == handle.run_id, handle.status()]

    run = env.start(workflow(changes_its_mind))
    env.run_until_idle()
    assert env.result(run) == ["not needed", True, "cancelled"]
    assert len(found(env, run, "ChildCancelRequested")) == 1


def test_a_child_that_was_refused_beside_one_that_started_leaves_none(env: Environment) -> None:
    """The failure of the one takes the wait for the other away before it has begun."""

    async def both() -> Any:
        try:
            await asyncio.gather(start_child("kid.nowhere"), start_child(ask))
        except ChildNotStarted as error:
            await asyncio.sleep(3600)
            return error.name

    env.wait_for(env.client.publish([ask.definition]))
    # gather leaves its other coroutines to themselves.
    run = env.start(workflow(both))
    env.run_until_idle()
    env.advance("1h")
    assert env.result(run) == "kid.nowhere"
    assert others(env, run) == [RunStatus.CANCELLED]


def test_a_task_group_cancels_the_child_that_was_started_with_the_refused_one(
    env: Environment,
) -> None:
    async def both() -> Any:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(start_child("kid.nowhere"))
                group.create_task(start_child(ask))
        except* ChildNotStarted:
            await sleep("1h")

    env.wait_for(env.client.publish([ask.definition]))
    run = env.start(workflow(both))
    env.run_until_idle()
    assert others(env, run) == [RunStatus.CANCELLED]
    assert not env.get(run).status.terminal
    assert env.run_to_end(run) is None


@pytest.mark.breaks_laws("the row of a run is taken away")
def test_a_deleted_child_is_a_named_failure(env: Environment) -> None:
    async def waits() -> str:
        handle = await start_child.with_options(wait=False)(ask)
        try:
            await handle.result()
        except ChildNotFound as error:
            return error.child_id
        return "found"

    run = env.start(workflow(waits))
    env.run_until_idle()
    env._local.database.change(
        "DELETE FROM runs WHERE run_id = ?", child_run_id(run.id, "kid.ask:1")
    )
    env.wait_for(env.client.wake(run.id))
    env.run_until_idle()
    assert env.result(run) == "kid.ask:1"


def test_children_are_nested_so_deep_and_no_deeper() -> None:
    with Environment(limits=Limits(depth=2)) as env:

        @workflow(name="kid.deeper")
        async def deeper(level: int) -> int:
            try:
                below: int = await start_child("kid.deeper", level=level + 1)
            except ChildTooDeep:
                return level
            return below

        run = env.start(deeper, 0)
        env.run_until_idle()
        assert env.result(run) == 2
        assert len(others(env, run)) == 2


def test_a_large_input_or_result_is_carried_and_one_too_large_refused(env: Environment) -> None:
    @workflow(name="kid.echo")
    async def echo(text: str) -> str:
        return text + text

    async def large() -> list[Any]:
        twice = await start_child(echo, "x" * 50_000)
        try:
            await start_child(echo, "x" * 50_000_000)
        except ChildNotStarted as error:
            return [len(twice), error.type]
        return []

    run = env.start(workflow(large))
    env.run_until_idle()
    assert env.result(run) == [100_000, "stepwell.errors.PayloadTooLarge"]


def test_hundreds_of_children_run_side_by_side(env: Environment) -> None:
    async def many() -> int:
        ships = (start_child(ship, Order(number=n)) for n in range(200))
        return sum(each.number for each in await asyncio.gather(*ships))

    run = env.start(workflow(many))
    env.run_until_idle()
    assert env.result(run) == 2 * sum(range(200))
    assert len(env.wait_for(env.client.list_runs(limit=200)).items) == 200


def test_a_changed_input_blocks_the_parent(env: Environment) -> None:
    numbers = [1]

    async def unsteady() -> None:
        await start_child(ship, Order(number=numbers[0]))
        await sleep("1h")

    run = env.start(workflow(unsteady))
    env.run_until_idle()
    numbers[0] = 2
    env.wait_for(env.client.wake(run.id))
    env.run_until_idle()
    note = env.get(run).attention
    assert note is not None
    assert "child 'kid.ship:1' with input" in note.reason
    numbers[0] = 1
    env.wait_for(env.client.wake(run.id))
    env.run_until_idle()
    assert env.get(run).attention is None


def test_a_child_in_the_code_that_is_not_there_any_more_blocks(env: Environment) -> None:
    asks = [True]

    async def changing() -> None:
        if asks[0]:
            await start_child.with_options(wait=False)(ask)
        await sleep("1h")

    run = env.start(workflow(changing))
    env.run_until_idle()
    asks[0] = False
    env.wait_for(env.client.wake(run.id))
    env.run_until_idle()
    note = env.get(run).attention
    assert note is not None
    assert "child 'kid.ask:1'" in note.reason
    asks[0] = True
    env.wait_for(env.client.wake(run.id))


def test_a_wait_for_nothing_but_an_unasked_child_fails_when_that_ends(env: Environment) -> None:
    async def stuck() -> None:
        await start_child.with_options(wait=False)(ask)
        await asyncio.get_running_loop().create_future()

    run = env.start(workflow(stuck))
    env.run_until_idle()
    assert [each.kind for each in env.get(run).waiting] == ["child"]
    [question] = env.hooks()
    env.resume_hook(question.token, 1)
    with pytest.raises(RunFailed, match="no step, hook, timer or child"):
        env.result(run)


@pytest.mark.breaks_laws("the rows of a run are taken away")
def test_a_report_to_a_parent_that_is_not_there_is_done_with(env: Environment) -> None:
    async def waits() -> Any:
        return await start_child(ask)

    run = env.start(workflow(waits))
    env.run_until_idle()
    [question] = env.hooks()
    env._local.database.change("DELETE FROM runs WHERE run_id = ?", run.id)
    env._local.database.change("DELETE FROM commits WHERE run_id = ?", run.id)
    env.resume_hook(question.token, 1)
    assert env.result(child_of(env, run, "kid.ask:1")) == 1
    assert env.wait_for(env._local.queue.next_visible_at()) is None


def test_a_report_that_names_another_run_is_not_believed(env: Environment) -> None:
    async def waits() -> Any:
        return await start_child(ask)

    run = env.start(workflow(waits))
    other = env.start(ship, Order(number=1))
    env.run_until_idle()
    told = ChildReported(run_id=run.id, child="kid.ask:1", child_run=other.id, last_event=3)
    env.wait_for(env._local.queue.send(told))
    env.run_until_idle()
    assert found(env, run, "ChildEnded") == []


def test_a_wake_up_sends_for_a_child_whose_start_was_lost(env: Environment) -> None:
    async def waits() -> Any:
        return await start_child(ask)

    run = env.start(workflow(waits))
    env.take_turn()
    env._local.database.change("DELETE FROM messages")
    env.run_until_idle()
    assert env.get(child_of(env, run, "kid.ask:1")).status is RunStatus.PENDING
    env.advance("6m")  # until then the queue takes a second message for the first
    env.wait_for(env._local.ports.queue.send(Wake(run_id=run.id, cause="doubt")))
    env.run_until_idle()
    assert env.get(child_of(env, run, "kid.ask:1")).status is RunStatus.SUSPENDED


def test_a_wake_up_finds_a_child_whose_report_was_lost(env: Environment) -> None:
    async def waits() -> Any:
        return await start_child(ask)

    run = env.start(workflow(waits))
    env.run_until_idle()
    [question] = env.hooks()
    env.wait_for(env.client.resume_hook(question.token, 1))
    env.take_turn()
    env._local.database.change("DELETE FROM messages")
    env.run_until_idle()
    assert not env.get(run).status.terminal
    env.wait_for(env.client.wake(run.id))
    env.run_until_idle()
    assert env.result(run) == 1


def test_the_errors_of_children_are_one_family() -> None:
    for kind in (ChildFailed, ChildNotStarted, ChildTooDeep, ChildCancelled, ChildNotFound):
        assert issubclass(kind, ChildError)
    assert current is not None
    assert not issubclass(ChildFailed, PayloadError)


def test_a_retry_starts_the_child_that_failed_as_another_run(env: Environment) -> None:
    down = [True]

    @step(name="kid.shaky_step", retry=RetryPolicy(max_attempts=1))
    async def shaky_step() -> str:
        if down[0]:
            raise OSError("down")
        return "up"

    @workflow(name="kid.shaky")
    async def shaky() -> str:
        return await shaky_step()

    async def both() -> list[Any]:
        order = await start_child(ship, Order(number=1))
        return [order.number, await start_child(shaky)]

    run = env.start(workflow(both))
    env.run_until_idle()
    assert env.get(run).status is RunStatus.FAILED
    down[0] = False
    env.wait_for(env.client.retry(run.id))
    env.run_until_idle()
    assert env.result(run) == [2, "up"]
    started = [each.child for each in found(env, run, "ChildStarted")]
    assert started == ["kid.ship:1", "kid.shaky:1", "kid.shaky:1"]
    first, second = [each.run_id for each in found(env, run, "ChildStarted")[1:]]
    assert first != second == child_run_id(run.id, "kid.shaky:1", 2)


def test_a_retry_of_a_cancelled_parent_starts_its_children_anew(env: Environment) -> None:
    async def holds() -> Any:
        abandon = start_child.with_options(wait=False, on_parent_close="abandon")
        kept = await abandon(ask)
        return [await start_child(ask), await kept.result()]

    run = env.start(workflow(holds))
    env.run_until_idle()
    env.cancel(run)
    env.wait_for(env.client.retry(run.id))
    env.run_until_idle()
    for answer in ("second", "kept"):
        [question] = [
            each
            for each in env.hooks()
            if (each.run_id == child_run_id(run.id, "kid.ask:1")) == (answer == "kept")
        ]
        env.resume_hook(question.token, answer)
    assert env.result(run) == ["second", "kept"]


def test_an_abandoned_child_that_ends_while_its_parent_is_ended_is_known_after_a_retry(
    env: Environment,
) -> None:
    async def holds() -> Any:
        abandon = start_child.with_options(wait=False, on_parent_close="abandon")
        return await (await abandon(ask)).result()

    run = env.start(workflow(holds))
    env.run_until_idle()
    env.cancel(run)
    [question] = env.hooks()
    env.resume_hook(question.token, "meanwhile")
    env.wait_for(env.client.retry(run.id))
    env.run_until_idle()
    assert env.result(run) == "meanwhile"


def test_a_fork_starts_open_children_anew(env: Environment) -> None:
    async def holds() -> Any:
        order = await start_child(ship, Order(number=1))
        return [order.number, await start_child(ask)]

    run = env.start(workflow(holds))
    env.run_until_idle()
    fork = env.wait_for(env.client.fork(run.id))
    env.run_until_idle()
    questions = {each.run_id: each for each in env.hooks()}
    assert set(questions) == {child_run_id(each.id, "kid.ask:1") for each in (run, fork)}
    for run_id, question in questions.items():
        env.resume_hook(question.token, run_id)
    assert [env.result(each)[1] for each in (run, fork)] == [
        child_run_id(each.id, "kid.ask:1") for each in (run, fork)
    ]
