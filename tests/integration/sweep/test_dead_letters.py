"""Dead letters of the embedded engine: what they promised is true, and their runs are marked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from stepwell import start_child, step, workflow
from stepwell.adapters.local.keys import keyring_of
from stepwell.adapters.local.runtime import LocalEngine
from stepwell.adapters.local.sweeping import MinuteSweep
from stepwell.adapters.local.wiring import LocalPorts
from stepwell.authoring.registry import Registry
from stepwell.core.ids import child_run_id
from stepwell.core.messages import (
    CancelRun,
    Continue,
    DeleteRun,
    HookDecided,
    InboxPut,
    Message,
    StepAttempt,
    StepReported,
    TimerDue,
    Wake,
    dump_message,
)
from stepwell.core.records import Attention, HookStatus, RunStatus
from stepwell.engine.settings import Settings
from stepwell.engine.sweep import Sweep, reason_of
from stepwell.errors import HookAlreadyDecided
from stepwell.testing.crashes import Crash, Crasher
from tests.integration.sweep.given import MINUTE, NOW, START, Given


def test_a_dead_start_becomes_a_run_that_is_stuck_and_runs_when_woken(given: Given) -> None:
    @workflow
    async def greet(name: str) -> str:
        return f"hello {name}"

    given.put(START)
    given.die(given.local.queue)
    assert given.take() == 1
    note = given.note("run")
    assert note.message == dump_message(START)
    assert "(start)" in note.reason
    assert given.header("run").status is RunStatus.PENDING
    given.wake("run")
    assert given.header("run").result == '"hello world"'


def test_a_dead_answer_is_decided_before_anybody_else_can(given: Given, ask: Any) -> None:
    run_id = given.start(ask)
    (pending,) = given.run(given.engine.client.list_hooks()).items
    dead = HookDecided(
        run_id=run_id, hook_id=pending.hook_id, decision_id="d", payload='"yes"', decided_at=1
    )
    given.put(dead)
    given.die(given.local.queue)
    assert given.take() == 1
    row = given.run(given.local.store.get_hook(run_id, pending.hook_id))
    assert (row.status, row.payload) == (HookStatus.RECEIVED, '"yes"')
    with pytest.raises(HookAlreadyDecided):
        given.run(given.engine.client.resume_hook(pending.token, "no"))
    assert given.note(run_id).message == dump_message(dead)
    given.wake(run_id)
    header = given.header(run_id)
    assert (header.result, header.attention) == ('"yes"', None)


def test_a_dead_cancel_is_done_when_its_run_is_woken(given: Given, ask: Any) -> None:
    run_id = given.start(ask)
    given.put(CancelRun(run_id=run_id, request_id="q", reason="enough"))
    given.die(given.local.queue)
    assert given.take() == 1
    assert given.header(run_id).cancel_requested
    assert given.note(run_id)
    given.wake(run_id)
    header = given.header(run_id)
    assert (header.status, header.attention) == (RunStatus.CANCELLED, None)


def test_a_dead_report_marks_its_run_which_goes_on_when_woken(given: Given, far: Any) -> None:
    run_id = given.start(far)
    assert given.run(given.engine.take_turn())  # the attempt
    given.die(given.local.queue)
    assert given.take() == 1
    assert "(step_reported)" in given.note(run_id).reason
    given.wake(run_id)
    assert given.header(run_id).result == "7"


def test_a_dead_attempt_marks_its_run_and_is_made_when_that_is_woken(
    given: Given, far: Any
) -> None:
    run_id = given.start(far)
    (attempt,) = given.run(given.local.step_queue.attempts_of(run_id))
    given.die(given.local.step_queue)
    assert given.take() == 1
    assert given.note(run_id).message == dump_message(attempt)
    given.wake(run_id)
    header = given.header(run_id)
    assert (header.result, header.attention) == ("7", None)


@pytest.mark.parametrize("body", ["no json", '{"type": "of_a_newer_version", "cause": "c"}'])
@pytest.mark.parametrize("table", ["messages", "step_messages"])
def test_a_body_that_nobody_can_read_is_rejected_and_its_run_is_marked(
    given: Given, ask: Any, table: str, body: str
) -> None:
    @step
    async def far() -> None:
        pass

    run_id = given.start(ask)
    given.put_text(table, run_id, body)
    assert given.run(given.engine.take_turn())
    note = given.note(run_id)
    assert note.message == body
    assert "cannot be read by this version" in note.reason
    given.wake(run_id)
    assert given.header(run_id).attention is None


def test_a_run_that_has_ended_is_not_marked(given: Given, ask: Any) -> None:
    run_id = given.start(ask)
    given.run(given.engine.client.cancel(run_id))
    given.work()
    given.put(Wake(run_id=run_id, cause="c"))
    given.die(given.local.queue)
    assert given.take() == 1
    assert given.header(run_id).attention is None


def test_a_dead_message_of_a_run_that_is_not_there_is_taken(given: Given) -> None:
    given.put(Wake(run_id="gone", cause="c"))
    given.die(given.local.queue)
    assert given.take() == 1
    assert given.run(given.local.store.get_header("gone")) is None


def test_a_blocked_run_stays_blocked_and_carries_the_message(given: Given, ask: Any) -> None:
    run_id = given.start(ask)
    note = Attention(kind="BLOCKED", reason="no such workflow", since=1)
    given.mark(run_id, note)
    message = Wake(run_id=run_id, cause="c")
    given.put(message)
    given.die(given.local.queue)
    given.take()
    assert given.note(run_id, "BLOCKED") == replace(note, message=dump_message(message))


@pytest.mark.parametrize("more", [0, 1])
def test_a_mark_carries_a_body_of_up_to_32_kb(given: Given, ask: Any, more: int) -> None:
    run_id = given.start(ask)
    body = "é" * 16_384 + "x" * more
    given.put_text("messages", run_id, body)
    assert given.run(given.engine.take_turn())
    assert given.note(run_id).message == (None if more else body)


def test_a_dead_letter_is_taken_once_and_stays_to_be_looked_at(given: Given, ask: Any) -> None:
    run_id = given.start(ask)
    given.put(Wake(run_id=run_id, cause="c"))
    given.die(given.local.queue)
    assert given.take() == 1
    given.wake(run_id)
    assert given.take() == 0
    assert given.header(run_id).attention is None
    assert len(given.run(given.local.queue.dead_letters())) == 1


def test_a_dead_letter_that_is_sent_again_and_dies_again_is_taken_again(
    given: Given, ask: Any
) -> None:
    run_id = given.start(ask)
    given.put(Wake(run_id=run_id, cause="c"))
    given.die(given.local.queue)
    given.take()
    (letter,) = given.run(given.local.queue.dead_letters())
    assert given.run(given.local.queue.redrive(letter.message_id))
    given.die(given.local.queue)
    assert given.take() == 1


def test_a_dead_letter_that_cannot_be_taken_waits_and_keeps_no_other_from_it(
    given: Given, ask: Any, caplog: pytest.LogCaptureFixture
) -> None:
    spoilt, good = given.start(ask), given.start(ask)
    change = "UPDATE runs SET body = json_set(body, '$.status', ?) WHERE run_id = ?"
    given.local.database.change(change, "of-a-later-version", spoilt)
    given.put(Wake(run_id=spoilt, cause="c"))
    given.put(Wake(run_id=good, cause="c"))
    given.die(given.local.queue)
    assert given.take() == 1
    assert given.note(good)
    assert "cannot be taken" in caplog.text
    given.local.database.change(change, "SUSPENDED", spoilt)
    assert given.take() == 1
    assert given.note(spoilt)


def test_a_timer_that_never_got_into_the_run_queue_is_sent_if_it_is_due(given: Given) -> None:
    sweep = Sweep(given.local.ports)
    timer = TimerDue(run_id="run", wait_id="w", arm=1, due=NOW + 1)
    assert not given.run(sweep.send_timer(timer))
    assert given.run(given.local.queue.depth()) == 0
    given.clock.advance(1)
    assert given.run(sweep.send_timer(timer))
    assert given.run(given.local.queue.depth()) == 1


# Killed in between

DEAD: list[Message | StepAttempt] = [
    START,
    HookDecided(run_id="R", hook_id="answer:1", decision_id="d", payload="1", decided_at=1),
    CancelRun(run_id="R", request_id="q"),
    StepReported(run_id="R", step="far:1", order=2, claim="c"),
    StepAttempt(run_id="R", step="far:1", name="far", order=2),
    TimerDue(run_id="R", wait_id="answer:1", arm=0, due=NOW),
    Continue(run_id="R", cause="m"),
    Wake(run_id="R", cause="c"),
]


@pytest.mark.parametrize("message", DEAD, ids=lambda message: message.type)
def test_a_kill_between_any_two_writes_of_taking_a_dead_letter_changes_nothing(
    given: Given, ask: Any, message: Message | StepAttempt
) -> None:
    run_id = message.run_id
    if run_id == "R":
        run_id = given.start(ask)
        message = message.model_copy(update={"run_id": run_id})
    crasher = Crasher()
    killed = Sweep(crasher.wrap(given.local.ports))
    body = dump_message(message)
    tables = ("runs", "hooks")
    before = [given.local.database.query(f"SELECT * FROM {table}") for table in tables]

    async def take(sweep: Sweep) -> bool:
        reason = reason_of(message, "the run queue")
        with crasher.armed():
            return await sweep.take_dead_letter(run_id, message, reason=reason, body=body)

    def rows() -> Any:
        return given.run(given.local.store.load(run_id))

    assert given.run(take(killed))
    undisturbed, calls = rows(), len(crasher.calls)
    assert calls >= 2
    for call in range(1, calls + 1):
        for when in ("before", "after"):
            _restore(given.local, dict(zip(tables, before, strict=True)))
            crasher.crash_at(call, when)
            with pytest.raises(Crash):
                given.run(take(killed))
            assert given.run(take(killed))
            assert rows() == undisturbed


def test_a_kill_before_a_dead_letter_is_noted_as_taken_has_it_taken_again(
    given: Given, ask: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = given.start(ask)
    given.put(Wake(run_id=run_id, cause="c"))
    given.die(given.local.queue)

    async def die(_: str) -> bool:
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(given.local.queue, "take", die)
        with pytest.raises(Crash):
            given.take()
    first = given.note(run_id)
    assert given.take() == 1
    assert given.note(run_id) == first


# The embedded engine


def test_serving_sweeps_at_first_and_in_each_minute(given: Given, nap: Any) -> None:
    async def play() -> None:
        late = await given.engine.client.start(nap)
        await given.engine.run_until_idle()
        given.lose("timers")
        given.clock.advance(15 * MINUTE)
        await given.engine.serve(until_idle=True)
        assert await late.result(timeout=0) == "rested"
        later = await given.engine.client.start(nap)
        await given.engine.run_until_idle()
        given.lose("timers")
        given.clock.advance(15 * MINUTE)
        await given.engine.serve(until_idle=True)
        assert await later.result(timeout=0) == "rested"

    given.run(play())


def test_a_minute_has_one_sweep(given: Given) -> None:
    each = MinuteSweep(given.local)
    assert given.run(each.sweep()) is not None
    given.clock.advance(MINUTE - 1)
    assert given.run(each.sweep()) is None
    given.clock.advance(1)
    assert given.run(each.sweep()) is not None


def test_a_sweep_that_fails_leaves_the_work_alone(
    given: Given, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    @workflow
    async def hello() -> str:
        return "hello"

    async def fail(*_: Any) -> Any:
        raise RuntimeError("no")

    async def play() -> None:
        monkeypatch.setattr(given.local.store, "overdue_runs", fail)
        handle = await given.engine.client.start(hello)
        await given.engine.serve(until_idle=True)
        assert await handle.result(timeout=0) == "hello"

    given.run(play())
    assert "the sweep failed" in caplog.text


@pytest.mark.parametrize("serve", [True, False])
def test_a_message_that_kills_every_turn_is_on_the_mark_of_its_run(
    given: Given, serve: bool
) -> None:
    given.put(START)
    given.die(given.local.queue)
    engine = LocalEngine(
        given.local,
        registry=Registry(),
        settings=Settings(keyring=keyring_of(given.local.database)),
    )
    work = engine.serve(until_idle=True) if serve else engine.run_until_idle()
    given.run(work)
    assert given.note("run").message == dump_message(START)


def _restore(local: LocalPorts, tables: dict[str, Any]) -> None:
    for table, rows in tables.items():
        local.database.change(f"DELETE FROM {table}")
        for row in rows:
            places = ", ".join("?" * len(row))
            local.database.change(f"INSERT INTO {table} VALUES ({places})", *row)


def test_a_parent_is_told_of_a_child_whose_last_message_is_a_dead_letter(
    given: Given, ask: Any
) -> None:
    """The child ended, and died each time before it could say so."""

    @workflow
    async def above() -> Any:
        return await start_child(ask)

    run_id = given.start(above)
    child = child_run_id(run_id, f"{ask.definition.name}:1")
    given.run(given.engine.client.cancel(child, "enough"))
    assert given.run(given.engine.take_turn())
    [body] = given.local.database.query("SELECT body FROM messages WHERE run_id = ?", run_id)
    assert "child_reported" in str(body[0])
    given.local.database.change("DELETE FROM messages")
    given.put(CancelRun(run_id=child, request_id="dead"))
    given.die(given.local.queue)
    assert given.take() == 1
    given.clock.advance(10 * MINUTE)
    given.work()
    error = given.header(run_id).error
    assert error is not None
    assert error.type == "stepwell.errors.ChildCancelled"


def test_children_are_told_of_a_parent_whose_last_message_is_a_dead_letter(
    given: Given, ask: Any
) -> None:
    """The parent ended, and died each time before it could say so."""

    @workflow
    async def leaves() -> Any:
        await start_child.with_options(wait=False)(ask)

    run_id = given.run(given.engine.client.start(leaves)).id
    assert given.run(given.engine.take_turn())
    assert given.local.database.change("DELETE FROM messages WHERE body LIKE '%\"cancel\"%'")
    given.turns()
    child = child_run_id(run_id, f"{ask.definition.name}:1")
    assert given.header(child).status is RunStatus.SUSPENDED
    given.put(CancelRun(run_id=run_id, request_id="dead"))
    given.die(given.local.queue)
    given.take()
    given.clock.advance(10 * MINUTE)
    given.work()
    assert given.header(child).status is RunStatus.CANCELLED


def test_of_two_dead_entries_none_is_lost(given: Given, ask: Any) -> None:
    """A mark carries one message, and their callers died before they could put the rows."""
    run_id = given.start(ask)
    for n in (1, 2):
        given.put(
            InboxPut(run_id=run_id, entry_id=f"e{n}", key=f"key {n}", payload=f"{n}", sent_at=n)
        )
    given.die(given.local.queue)
    given.take()
    given.wake(run_id)
    entries = given.run(given.engine.client.list_inbox(run_id))
    assert [(each.key, each.value) for each in entries] == [("key 1", 1), ("key 2", 2)]
    assert all(each.event for each in entries)


@pytest.mark.parametrize("retried", [False, True])
def test_a_deletion_that_is_a_dead_letter_is_asked_for_again_after_a_day(
    given: Given, retried: bool
) -> None:
    broken = [True]

    @workflow
    async def fails() -> None:
        if broken:
            raise ValueError("broken")

    def dies(request_id: str) -> None:
        given.put(DeleteRun(run_id=run_id, request_id=request_id, after=end))
        given.die(given.local.queue)
        assert given.take() == 1
        given.work()

    run_id = given.start(fails)
    end = given.header(run_id).last_event
    dies("first")
    assert given.header(run_id).kept_until == given.clock.now() + 24 * 60 * MINUTE
    broken.clear()
    if retried:
        given.run(given.engine.client.retry(run_id))
        given.work()
        dies("second")
        assert given.header(run_id).kept_until is None
    given.clock.advance(48 * 60 * MINUTE)
    given.run(Sweep(given.local.ports).delete_expired(lambda: MINUTE))
    given.work()
    assert (given.header(run_id).deleted_at is None) is retried
