"""The shortest ways on which a protocol like this one goes wrong, driven on the engine itself.

Each rule that the protocol needs has a way that breaks without it. The way is driven here, call by
call, up to the point at which it would go wrong, and there the engine does the right thing; or the
engine does not let it be driven so far, and the one step that it refuses is named.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from examples.outside import Outside, connect, outside
from stepwell.authoring.decorators import Workflow
from stepwell.client import Client
from stepwell.errors import HookAlreadyDecided, HookExpired, IdempotencyConflict
from tests.acceptance.doing import greet, long_turns
from tests.acceptance.drive import Drive, Impossible
from tests.acceptance.waiting import one_hook, two_hooks

STARTED = """
    ann comes
    ann: queue.send
    ann: store.put_header
    worker: store.load
    worker: store.append
"""
ASKED = f"""{STARTED}
    worker: store.put_hook
    worker: store.append
    worker: timers.start
"""
WAITING = f"""{ASKED}
    worker: store.update_header
    worker: m.delete
"""
ANSWERED = """
    bob comes
    bob: store.get_hook
    bob: store.get_header
    bob: queue.send
    bob: store.decide_hook
"""


@pytest.fixture(autouse=True)
def _world() -> Outside:
    return connect(":memory:")


@pytest.fixture
def drive() -> Iterator[Drive]:
    with Drive() as made:
        yield made


def starting(
    workflow: Workflow[..., Any], *args: Any, key: str | None = None
) -> Callable[[Client], Coroutine[Any, Any, Any]]:
    async def start(client: Client) -> Any:
        return await client.with_options(idempotency_key=key).start(workflow, *args)

    return start


def test_a_redelivered_start_goes_on_instead_of_counting_as_a_duplicate(drive: Drive) -> None:
    drive.ask("ann", starting(one_hook))
    drive.follow(f"""{STARTED}
        worker: store.put_hook: dies before
        the visibility is over
        worker: store.load
    """)
    assert drive.log() == ["RunStarted", "StepCompleted"]
    with pytest.raises(Impossible, match="put_hook"):
        drive.follow("worker: m.delete")
    drive.follow("worker: store.put_hook\nworker: store.append")
    assert drive.row("question").status == "PENDING"
    assert outside().requests("told") == 1
    assert drive.finish().rows.header.result == '"expired"'  # type: ignore[union-attr]


def test_a_deadline_that_was_decided_and_not_recorded_is_recorded_by_the_next_delivery(
    drive: Drive,
) -> None:
    drive.ask("ann", starting(one_hook))
    drive.follow(f"""{WAITING}
        a day passes
        the schedule fires
        worker: store.load
        worker: store.decide_hook
    """)
    assert drive.row("question").status == "EXPIRED"
    drive.follow("""
        worker: store.append: dies before
        the visibility is over
        worker: store.load
    """)
    assert "HookExpired" not in drive.log()
    with pytest.raises(Impossible, match="append"):
        drive.follow("worker: m.delete")
    drive.follow("worker: store.append")
    assert "HookExpired" in drive.log()
    drive.finish()


def test_a_zombie_that_puts_a_hook_leaves_an_answer_that_stands_there(drive: Drive) -> None:
    bob = drive.answer("bob", "question", "first")
    cyd = drive.answer("cyd", "question", "second")
    drive.ask("ann", starting(one_hook))
    drive.follow(f"""{STARTED}
        worker: store.put_hook: freezes
        worker: store.load
        worker: store.put_hook
        {ANSWERED}
        zombie thaws
        zombie: store.put_hook
    """)
    assert (bob.error, drive.row("question").status) == (None, "RECEIVED")
    drive.follow("cyd comes\ncyd: store.get_hook")
    drive.sim.cluster.go_on()
    assert drive.finish().rows.header.result == '"first"'  # type: ignore[union-attr]
    assert isinstance(cyd.error, HookAlreadyDecided)


def test_a_zombie_that_loses_its_number_gives_its_message_back(drive: Drive) -> None:
    drive.ask("ann", starting(one_hook))
    drive.follow("""
        ann comes
        ann: queue.send
        ann: store.put_header
        worker: store.load
        worker: store.append: freezes
        worker: store.load
        worker: store.append
        zombie thaws
        zombie: store.append
    """)
    assert drive.log() == ["RunStarted", "StepStarted"]
    drive.follow("zombie: store.load")  # has the run ended meanwhile?
    with pytest.raises(Impossible, match="give_back"):
        drive.follow("zombie: m.delete")
    drive.finish()


def test_a_turn_whose_number_a_zombie_took_gives_its_message_back(drive: Drive) -> None:
    drive.ask("ann", starting(one_hook))
    drive.follow("""
        ann comes
        ann: queue.send
        ann: store.put_header
        worker: store.load
        worker: store.append: freezes
        worker: store.load
        zombie thaws
        zombie: store.append
        worker: store.append
    """)
    drive.follow("worker: store.load")
    with pytest.raises(Impossible, match="give_back"):
        drive.follow("worker: m.delete")
    drive.follow("worker: m.give_back\nzombie: store.put_hook: dies before")
    assert drive.log() == ["RunStarted", "StepCompleted"]
    facts = drive.finish()
    assert [event.type for event in facts.events].count("RunStarted") == 1
    assert facts.rows.header.status == "COMPLETED"  # type: ignore[union-attr]


def test_a_zombie_does_not_write_an_older_header_over_an_ended_run(drive: Drive) -> None:
    drive.answer("bob", "question", "yes")
    drive.ask("ann", starting(one_hook))
    drive.follow(f"""{ASKED}
        worker: store.update_header: freezes
        {ANSWERED}
        worker: store.load
        worker: store.append
        worker: store.append
        worker: store.append
        worker: store.update_header
        zombie thaws
        zombie: store.update_header
    """)
    header = drive.facts().rows.header
    assert header is not None
    assert (header.status, header.result) == ("COMPLETED", '"yes"')
    drive.follow("zombie: store.load")  # has the run ended meanwhile?
    with pytest.raises(Impossible, match="give_back"):
        drive.follow("zombie: m.delete")
    drive.finish()


def test_a_header_that_lags_behind_the_end_is_written_before_the_acknowledgement(
    drive: Drive,
) -> None:
    drive.answer("bob", "question", "yes")
    drive.ask("ann", starting(one_hook))
    drive.follow(f"""{WAITING}{ANSWERED}
        worker: store.load
        worker: store.append
        worker: store.append
        worker: store.update_header: dies before
    """)
    header = drive.facts().rows.header
    assert header is not None
    assert (drive.log()[-1], header.status) == ("RunCompleted", "SUSPENDED")
    drive.follow("the visibility is over\nworker: store.load")
    with pytest.raises(Impossible, match="update_header"):
        drive.follow("worker: m.delete")
    drive.follow("worker: store.update_header\nworker: m.delete")
    assert drive.finish().rows.header.status == "COMPLETED"  # type: ignore[union-attr]


def test_a_cancelled_run_has_no_last_event_while_a_hook_of_it_is_open(drive: Drive) -> None:
    async def cancel(client: Client) -> None:
        await client.cancel(drive.sim.run_ids()[0])

    drive.ask("ann", starting(one_hook))
    late = drive.answer("late", "question", "yes")
    drive.ask("bob", cancel)
    drive.follow(f"""{WAITING}
        bob comes
        bob: store.get_header
        bob: queue.send
        worker: store.load
        worker: store.append
    """)
    assert drive.log()[-1] == "CancelRequested"
    with pytest.raises(Impossible, match="decide_hook"):
        drive.follow("worker: store.append")
    drive.follow("""
        worker: store.decide_hook: dies before
        the visibility is over
        worker: store.load
        worker: store.decide_hook
        worker: store.append
        worker: store.update_header
        worker: timers.cancel
        worker: m.delete
        late comes
    """)
    assert drive.row("question").status == "CLOSED"
    assert drive.finish().rows.header.status == "CANCELLED"  # type: ignore[union-attr]
    assert isinstance(late.error, HookExpired)


def test_a_hook_that_lost_its_race_is_closed_before_the_run_ends(drive: Drive) -> None:
    drive.answer("bob", "left", "yes")
    late = drive.answer("late", "right", "too late")
    drive.ask("ann", starting(two_hooks))
    drive.follow(f"""{STARTED}
        worker: store.put_hook
        worker: store.put_hook
        worker: store.append: dies before
        {ANSWERED}
        the visibility is over
        worker: store.load
    """)
    while "store.decide_hook" not in drive.waits_for("worker"):
        assert "RunCompleted" not in drive.log()
        drive.follow(f"worker: {drive.waits_for('worker')[0]}")
    assert drive.row("right").status == "PENDING"
    drive.follow("worker: store.decide_hook")
    assert (drive.row("right").status, "RunCompleted" in drive.log()) == ("CLOSED", False)
    drive.follow("late comes")
    assert drive.finish().rows.header.status == "COMPLETED"  # type: ignore[union-attr]
    assert isinstance(late.error, HookExpired)


def test_nobody_is_told_too_late_by_the_clock_alone(drive: Drive) -> None:
    bob = drive.answer("bob", "question", "in time")
    cyd = drive.answer("cyd", "question", "late")
    drive.ask("ann", starting(one_hook))
    drive.follow(f"""{STARTED}
        worker: store.put_hook
        worker: store.append: dies before
        bob comes
        bob: store.get_hook
        bob: store.get_header
        bob: queue.send
        a day passes
        cyd comes
        cyd: store.get_hook
        cyd: store.get_header
        cyd: queue.send
    """)
    # Before he is told, the row is won; the answer that was sent earlier may still win it.
    assert (cyd.error, drive.waits_for("cyd")) == (None, ["store.decide_hook"])
    drive.follow("bob: store.decide_hook\ncyd: store.decide_hook\ncyd: store.get_hook")
    assert drive.finish().rows.header.result == '"in time"'  # type: ignore[union-attr]
    assert bob.error is None
    assert isinstance(cyd.error, HookAlreadyDecided)


def test_who_was_told_too_late_stays_right_when_an_earlier_answer_arrives(drive: Drive) -> None:
    bob = drive.answer("bob", "question", "in time")
    cyd = drive.answer("cyd", "question", "late")
    drive.ask("ann", starting(one_hook))
    drive.follow(f"""{STARTED}
        worker: store.put_hook
        worker: store.append: dies before
        bob comes
        bob: store.get_hook
        bob: store.get_header
        bob: queue.send
        a day passes
        cyd comes
        cyd: store.get_hook
        cyd: store.get_header
        cyd: queue.send
        cyd: store.decide_hook
        bob: store.decide_hook
    """)
    assert drive.finish().rows.header.result == '"expired"'  # type: ignore[union-attr]
    assert isinstance(bob.error, HookExpired)
    assert isinstance(cyd.error, HookExpired)


def test_a_worker_whose_clock_is_slow_takes_a_timer_for_due() -> None:
    with Drive(skew=-40_000) as drive:
        drive.ask("ann", starting(one_hook))
        drive.follow(f"""{WAITING}
            the deadline comes
            the schedule fires
            worker: store.load
        """)
        with pytest.raises(Impossible, match="decide_hook"):
            drive.follow("worker: m.delete")
        drive.follow("worker: store.decide_hook\nworker: store.append")
        assert "HookExpired" in drive.log()
        drive.finish()


def test_who_loses_a_start_to_another_input_is_told_so(drive: Drive) -> None:
    ann = drive.ask("ann", starting(greet, "ann", key="k"))
    bob = drive.ask("bob", starting(greet, "bob", key="k"))
    drive.follow("""
        ann comes
        ann: store.get_header
        ann: queue.send
        worker: store.load
        bob comes
        bob: store.get_header
        worker: store.put_header
        worker: store.append
        worker: store.update_header
        worker: m.delete
        bob: queue.send
        bob: store.put_header
    """)
    assert isinstance(bob.error, IdempotencyConflict)
    assert drive.finish().rows.header.result == '"hello ann"'  # type: ignore[union-attr]
    assert ann.error is None


def test_a_second_hand_over_is_not_swallowed_as_a_duplicate_of_the_first(drive: Drive) -> None:
    drive.ask("ann", starting(long_turns, [40] * 7))
    drive.follow("ann comes")
    facts = drive.finish()
    continued = [each for each in drive.sim.cluster.queue.done_with if "continue" in each.body]
    assert len(continued) >= 2
    assert len({each.body for each in continued}) == len(continued)
    assert facts.rows.header.status == "COMPLETED"  # type: ignore[union-attr]
    assert outside().requests("begun") == 7


def test_the_receipt_of_a_zombie_deletes_nothing(drive: Drive) -> None:
    drive.ask("ann", starting(one_hook))
    drive.follow(f"""{ASKED}
        worker: store.update_header
        worker: m.delete: freezes
        zombie thaws
        zombie: m.delete
    """)
    assert [each.receive_count for each in drive.sim.cluster.queue.letters] == [2]
    drive.finish()
