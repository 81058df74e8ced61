"""What whoever was overtaken leaves behind: it is recorded, or nobody is told of it.

These are ways on which the engine did go wrong, driven call by call.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from examples.outside import Outside, connect
from stepwell import (
    Result,
    RetryPolicy,
    hook,
    load_step_checkpoint,
    save_step_checkpoint,
    step,
    step_hook,
    workflow,
)
from stepwell.core.records import HookStatus, RunStatus
from stepwell.errors import HookExpired
from tests.acceptance.drive import Drive

#: An attempt is dispatched and claimed, and its run waits for it.
CLAIMED = """
    worker: store.append
    worker: steps.send
    stepper: store.load
    stepper: store.put_step
    worker: store.update_header
    worker: m.delete
"""
#: Then the run is cancelled: it is in the log, and the attempt is not told yet.
CANCELLED = """
    bob comes
    bob: store.get_header
    bob: queue.send
    bob: store.request_cancel
    worker: store.load
    worker: store.append
"""
#: Or the attempt freezes before it opens its hook, is taken for dead, and thaws after the end.
TAKEN_FOR_DEAD = """
    stepper: store.put_hook: freezes
    stepper: store.load
    stepper: store.put_step
    stepper: queue.send
    stepper: s.delete
    worker: store.load
    worker: store.append
    worker: store.update_header
    worker: m.delete
    zombie thaws
    zombie: store.put_hook
"""


@pytest.fixture(autouse=True)
def _world() -> Outside:
    return connect(":memory:")


@pytest.fixture
def drive() -> Iterator[Drive]:
    with Drive() as made:
        yield made


@workflow(name="overtaken.race")
async def race() -> Any:
    asked = [asyncio.create_task(hook(name)) for name in ("left", "right")]
    done, late = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
    for each in late:
        each.cancel()
    return sorted(each.result() for each in done)


@step(name="overtaken.asks", dispatch="worker", retry=RetryPolicy(initial=0))
async def asks() -> str:
    return str(await step_hook("question"))


@workflow(name="overtaken.elsewhere")
async def elsewhere() -> str:
    return await asks()


@step(name="overtaken.asks_once", dispatch="worker", retry=RetryPolicy(max_attempts=1))
async def asks_once() -> str:
    return str(await step_hook("question"))


@workflow(name="overtaken.once_elsewhere")
async def once_elsewhere() -> str:
    return await asks_once()


@step(name="overtaken.told", stream=True)
async def told() -> AsyncIterator[str | Result[str]]:
    if await load_step_checkpoint() is None:
        yield "one"
        yield "two"
        await save_step_checkpoint("told")
    yield "three"
    yield Result("done")


@workflow(name="overtaken.streams")
async def streams() -> str:
    result: str = await told()
    return result


@step(name="overtaken.flaky", retry=RetryPolicy(initial="1h", jitter="none"))
async def flaky() -> str:
    raise ConnectionError("down")


@workflow(name="overtaken.retries")
async def retries() -> str:
    return await flaky()


def _start(drive: Drive, flow: Any) -> None:
    drive.ask("ann", lambda client: client.start(flow))
    drive.follow(
        """
        ann comes
        ann: queue.send
        ann: store.put_header
        worker: store.load
        """
    )


def test_an_answer_that_its_turn_meets_while_it_opens_another_hook_is_recorded(
    drive: Drive,
) -> None:
    """Both hooks are answered before any turn has recorded that they are there."""
    bob = drive.answer("bob", "left", 1)
    eve = drive.answer("eve", "right", 2)
    _start(drive, race)
    drive.follow(
        """
        worker: store.put_hook
        worker: store.put_hook
        worker: store.append: freezes
        worker: store.load
        bob comes
        bob: store.get_hook
        bob: store.get_header
        bob: queue.send
        bob: store.decide_hook
        eve comes
        eve: store.get_hook
        eve: store.get_header
        eve: queue.send
        eve: store.decide_hook
        """
    )
    facts = drive.finish()
    assert (bob.error, eve.error) == (None, None)
    received = [event.hook for event in facts.events if event.type == "HookReceived"]
    assert sorted(received) == ["1/left:1", "2/right:1"]


def test_an_attempt_that_was_called_off_tells_nobody_of_its_hook(drive: Drive) -> None:
    """The turn that cancels reads the rows before the attempt has put its own."""
    _start(drive, elsewhere)
    drive.ask("bob", lambda client: client.cancel(drive.sim.run_ids()[0]))
    eve = drive.answer("eve", "question", "yes")
    drive.follow(
        f"""{CLAIMED}{CANCELLED}
        worker: store.put_step
        worker: store.load
        stepper: store.put_hook
        worker: store.append
        worker: store.update_header
        stepper: store.get_step
        stepper: store.decide_hook
        eve comes
        """
    )
    facts = drive.finish()
    assert facts.rows.hooks[0].status is HookStatus.CLOSED
    assert isinstance(eve.error, HookExpired)


def test_a_hook_of_an_attempt_that_was_called_off_and_died_is_closed(drive: Drive) -> None:
    """It dies between its row and its look; whoever gets its message next sees to the row."""
    _start(drive, elsewhere)
    drive.ask("bob", lambda client: client.cancel(drive.sim.run_ids()[0]))
    drive.follow(
        f"""{CLAIMED}{CANCELLED}
        worker: store.put_step
        worker: store.load
        stepper: store.put_hook: dies after
        """
    )
    facts = drive.finish()
    assert [row.status for row in facts.rows.hooks] == [HookStatus.CLOSED]


def test_whoever_calls_an_attempt_off_knows_of_the_hook_that_it_has_opened(drive: Drive) -> None:
    """The attempt found that it is wanted still: so the turn that cancels finds its row."""
    _start(drive, elsewhere)
    drive.ask("bob", lambda client: client.cancel(drive.sim.run_ids()[0]))
    drive.follow(
        f"""{CLAIMED}{CANCELLED}
        stepper: store.put_hook
        stepper: store.get_step
        worker: store.put_step
        """
    )
    facts = drive.finish()
    assert facts.rows.hooks[0].status is HookStatus.CLOSED
    assert drive.log()[-2:] == ["HookClosed", "RunCancelled"]


def test_a_frozen_entry_saves_no_checkpoint_once_a_later_one_has_looked(drive: Drive) -> None:
    """Its output was superseded, so numbers would have a gap from there on."""
    _start(drive, streams)
    drive.follow(
        """
        worker: store.get_checkpoint
        worker: store.get_chunks
        worker: store.put_chunk
        worker: store.put_chunk
        worker: store.put_checkpoint: freezes
        worker: store.load
        worker: store.append
        worker: store.get_checkpoint
        worker: store.put_checkpoint
        zombie thaws
        zombie: store.put_checkpoint
        """
    )
    assert drive.waits_for("zombie") == ["store.load"]  # was it overtaken by the end of the run?
    facts = drive.finish()
    assert [chunk.number for chunk in facts.output["overtaken.told:1"]] == [1, 2, 3]


def test_a_frozen_entry_puts_no_older_checkpoint_back(drive: Drive) -> None:
    """It had read the one that stood before a later entry saved another, to fence it."""
    drive.sim.cluster.left["freezes"] = 9
    _start(drive, streams)
    drive.follow(
        """
        worker: store.get_checkpoint
        worker: store.get_chunks
        worker: store.put_chunk
        worker: store.put_chunk
        worker: store.put_checkpoint
        worker: store.put_chunk: dies before
        the visibility is over
        worker: store.load
        worker: store.append
        worker: store.get_checkpoint
        worker: store.put_checkpoint: freezes
        worker: store.load
        worker: store.append
        worker: store.get_checkpoint
        worker: store.put_checkpoint
        zombie thaws
        zombie: store.put_checkpoint
        zombie: store.load
        """
    )
    assert drive.waits_for("zombie") == ["m.give_back"]
    facts = drive.finish()
    assert [chunk.number for chunk in facts.output["overtaken.told:1"]] == [1, 2, 3]


def test_a_hook_that_is_opened_after_the_end_of_its_run_takes_no_answer(drive: Drive) -> None:
    """An attempt froze, counted as dead, and was the last one; then it thaws and opens its hook."""
    _start(drive, once_elsewhere)
    bob = drive.answer("bob", "question", "yes")
    drive.follow(
        f"""{CLAIMED}{TAKEN_FOR_DEAD}
        bob comes
        bob: store.get_hook
        bob: store.get_header
        bob: store.decide_hook
        bob: store.get_hook
        """
    )
    assert isinstance(bob.error, HookExpired)
    facts = drive.finish()
    assert facts.rows.header is not None
    assert facts.rows.header.status is RunStatus.FAILED
    assert [row.status for row in facts.rows.hooks] == [HookStatus.CLOSED]


def test_an_overtaken_attempt_closes_what_it_opened_after_the_end(drive: Drive) -> None:
    _start(drive, once_elsewhere)
    drive.follow(
        f"""{CLAIMED}{TAKEN_FOR_DEAD}
        zombie: store.get_step
        zombie: store.put_step
        zombie: store.load
        zombie: store.decide_hook
        """
    )
    facts = drive.finish()
    assert [row.status for row in facts.rows.hooks] == [HookStatus.CLOSED]
    assert drive.sim.cluster.record.swept == 0


def test_a_retry_is_never_early_by_the_log_of_a_slow_worker() -> None:
    """The worker's clock is half a minute slow, so it takes the timer for one that is early."""
    with Drive(skew=-30_000) as drive:
        _start(drive, retries)
        facts = drive.finish()
        waits = [event for event in facts.events if event.type == "StepRetryScheduled"]
        later = [event.at for event in facts.events if event.type != "RunStarted"][1:]
        assert len(waits) > 1
        assert all(at >= wait.due for wait, at in zip(waits, later, strict=False))
        assert facts.rows.header is not None
        assert facts.rows.header.status is RunStatus.FAILED
