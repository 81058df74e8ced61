"""Marks on headers against turns: what somebody was promised survives whoever writes last."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from stepwell import hook, step, workflow
from stepwell.core.events import CancelRequested
from stepwell.core.messages import CancelRun, HookDecided, StepAttempt, TimerDue, Wake
from stepwell.core.records import Attention, HookStatus, RunStatus
from tests.contract.given import run
from tests.integration.aws.deployment import MAX_RECEIVES, Deployed


@pytest.fixture
def two() -> Any:
    @workflow
    async def two() -> str:
        return f"{await hook('first')} {await hook('second')}"

    return two


def waiting(deployed: Deployed, workflow: Any) -> str:
    handle = run(deployed.client.start(workflow))
    deployed.pump()
    return handle.id


def answer(deployed: Deployed, payload: Any = 1) -> None:
    (pending,) = run(deployed.client.list_hooks()).items
    run(deployed.client.resume_hook(pending.token, payload))


def before_the_next_header(
    deployed: Deployed, monkeypatch: pytest.MonkeyPatch, do: Callable[[], object]
) -> None:
    """Have something happen between a turn's reading and its writing of the header, once."""
    store, left = deployed.aws.store, [do]
    write = store._update_header

    def update(*given: Any) -> bool:
        if left:
            left.pop()()
        return write(*given)

    monkeypatch.setattr(type(store), "_update_header", lambda _, *given: update(*given))


def test_a_cancel_that_became_a_dead_letter_is_done_by_the_next_turn_that_works(
    deployed: Deployed, two: Any
) -> None:
    run_id = waiting(deployed, two)
    deployed.send("run-dead.fifo", CancelRun(run_id=run_id, request_id="q", reason="enough"))
    deployed.deliver("run-dead.fifo")
    answer(deployed)
    deployed.pump()
    header = deployed.header(run_id)
    assert (header.status, header.attention) == (RunStatus.CANCELLED, None)
    (asked,) = [
        each.event
        for each in run(deployed.client.history(run_id))
        if isinstance(each.event, CancelRequested)
    ]
    assert (asked.request_id, asked.reason) == ("q", "enough")


def test_a_cancel_is_done_also_when_a_later_dead_letter_took_its_place_on_the_mark(
    deployed: Deployed, two: Any
) -> None:
    run_id = waiting(deployed, two)
    for message in (CancelRun(run_id=run_id, request_id="q"), Wake(run_id=run_id, cause="c")):
        deployed.send("run-dead.fifo", message)
        deployed.deliver("run-dead.fifo", 1)
    run(deployed.client.wake(run_id))
    deployed.pump()
    assert deployed.header(run_id).status is RunStatus.CANCELLED


def test_a_cancel_whose_message_is_on_its_way_waits_for_it(deployed: Deployed, two: Any) -> None:
    run_id = waiting(deployed, two)
    run(deployed.aws.store.request_cancel(run_id))
    answer(deployed)
    deployed.pump()
    assert deployed.header(run_id).status is RunStatus.SUSPENDED


def test_a_turn_does_not_clear_a_mark_that_came_while_it_went_on(
    deployed: Deployed, two: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = waiting(deployed, two)
    attempt = StepAttempt(run_id=run_id, step="s:1", name="s", order=2)
    deployed.send("step-dead", attempt)
    before_the_next_header(deployed, monkeypatch, lambda: deployed.deliver("step-dead"))
    answer(deployed)
    assert len(deployed.deliver("run.fifo", 1)) == 1
    note = deployed.header(run_id).attention
    assert note is not None
    assert note.kind == "STUCK"
    deployed.due_now("run.fifo")
    deployed.pump()
    header = deployed.header(run_id)
    assert (header.attention, [wait.name for wait in header.waiting]) == (None, ["second"])


def test_an_attempt_that_became_a_dead_letter_during_a_turn_is_dispatched_again(
    deployed: Deployed, monkeypatch: pytest.MonkeyPatch
) -> None:
    @step(dispatch="worker")
    async def far() -> int:
        return 7

    @workflow
    async def waits_for_both() -> int:
        number, _ = await asyncio.gather(far(), hook("first"))
        return int(number)

    handle = run(deployed.client.start(waits_for_both))
    deployed.deliver("run.fifo", 1)
    (attempt,) = deployed.bodies("step")
    deployed.event("step")
    deployed.send("step-dead", attempt)
    before_the_next_header(deployed, monkeypatch, lambda: deployed.deliver("step-dead"))
    answer(deployed)
    deployed.deliver("run.fifo", 1)
    deployed.due_now("run.fifo")
    deployed.pump()
    assert deployed.header(handle.id).result == "7"


def test_the_sweeper_does_not_mark_over_what_a_turn_has_just_made_good(
    deployed: Deployed, two: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = waiting(deployed, two)
    note = Attention(kind="BLOCKED", reason="no such workflow", since=1)
    blocked = replace(deployed.header(run_id), attention=note)
    run(deployed.aws.store.update_header(blocked))
    good = replace(blocked, attention=None)
    deployed.send("run-dead.fifo", Wake(run_id=run_id, cause="c"))
    store = deployed.aws.store
    before_the_next_header(deployed, monkeypatch, lambda: store._update_header(good, None, False))
    deployed.deliver("run-dead.fifo")
    found = deployed.header(run_id).attention
    assert found is not None
    assert found.kind == "STUCK"


def test_a_mark_keeps_the_message_of_the_one_before(deployed: Deployed, two: Any) -> None:
    run_id = waiting(deployed, two)
    cancel = CancelRun(run_id=run_id, request_id="q")
    deployed.send("run-dead.fifo", cancel)
    deployed.deliver("run-dead.fifo")
    first = deployed.header(run_id).attention
    deployed.send("run.fifo", Wake(run_id=run_id, cause="c"))
    for _ in range(MAX_RECEIVES):
        deployed.fault(deployed.aws.table.client, "Query", "denied")
        deployed.due_now("run.fifo")
        deployed.deliver("run.fifo", 1)
    second = deployed.header(run_id).attention
    assert first is not None
    assert second is not None
    assert (second.message, second.reason == first.reason) == (first.message, False)


def test_a_header_written_twice_for_a_lost_reply_stands(deployed: Deployed, two: Any) -> None:
    run_id = waiting(deployed, two)
    header = deployed.header(run_id)
    marked = replace(header, attention=Attention(kind="STUCK", reason="r", since=1))
    deployed.fault(deployed.aws.table.client, "UpdateItem", "lost")
    assert run(deployed.aws.store.update_header(marked, over=header))
    assert deployed.header(run_id) == marked


@pytest.mark.parametrize("size", [0, 3_000])
def test_a_dead_letter_with_text_that_is_no_unicode_is_kept(deployed: Deployed, size: int) -> None:
    deployed.send("inbox", '{"token": "a.b.c.d", "x": "\\ud800' + "y" * size + '"}')
    deployed.deliver("inbox")
    assert deployed.deliver("inbox-dead") == []
    assert len(deployed.kept()) == 1


def test_a_dead_letter_with_a_long_reason_is_kept(deployed: Deployed) -> None:
    text: Any = {"DataType": "String", "StringValue": "x" * 500_000}
    deployed.aws.clients.sqs.send_message(
        QueueUrl=deployed.url("inbox-dead"),
        MessageBody="x",
        MessageAttributes={"reason": text, "code": {"DataType": "String", "StringValue": "c"}},
    )
    assert deployed.deliver("inbox-dead") == []
    assert len(deployed.kept()[0]["reason"]) == 1_000


def test_a_token_is_not_kept_wherever_it_stands(deployed: Deployed, two: Any) -> None:
    waiting(deployed, two)
    (pending,) = run(deployed.client.list_hooks()).items
    wrapped = '{"Message": "{\\"token\\": \\"' + pending.token + '\\"}"}'
    for body in (wrapped, f"no json {pending.token}", pending.token):
        deployed.send("inbox", body)
        deployed.deliver("inbox")
        deployed.deliver("inbox-dead")
    assert len(deployed.kept()) == 3
    assert pending.token.rpartition(".")[2] not in str(deployed.kept())


def test_the_reason_of_a_refusal_is_kept_and_not_logged(
    deployed: Deployed, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    @workflow
    async def number() -> int:
        value: int = await hook("answer", payload_schema=int)
        return value

    waiting(deployed, number)
    (pending,) = run(deployed.client.list_hooks()).items
    deployed.send("inbox", {"type": "resume_hook", "token": pending.token, "payload": "a-secret"})
    deployed.deliver("inbox")
    deployed.deliver("inbox-dead")
    assert "a-secret" in deployed.kept()[0]["reason"]
    logged = caplog.text + "".join(capsys.readouterr())
    assert "a-secret" not in logged
    assert "PayloadRejected" in logged


def spoil(deployed: Deployed, run_id: str, sort_key: str = "A") -> None:
    """Give a row a status that only a later version knows."""
    deployed.aws.table.client.update_item(
        TableName="stepwell",
        Key={"pk": {"S": f"R#{run_id}"}, "sk": {"S": sort_key}},
        UpdateExpression="SET #s = :s",
        ExpressionAttributeNames={"#s": "status"},
        ExpressionAttributeValues={":s": {"S": "of-a-later-version"}},
    )


@pytest.mark.breaks_laws("a row is spoilt")
def test_a_row_that_cannot_be_read_leaves_the_list_to_the_others(
    deployed: Deployed, two: Any, caplog: pytest.LogCaptureFixture
) -> None:
    spoilt, good = waiting(deployed, two), waiting(deployed, two)
    spoil(deployed, spoilt)
    spoil(deployed, spoilt, "H#first:1")
    assert [each.run_id for each in run(deployed.client.list_runs()).items] == [good]
    assert [each.run_id for each in run(deployed.client.list_hooks()).items] == [good]
    assert spoilt in caplog.text
    assert "of-a-later-version" not in caplog.text


def test_the_decided_row_of_a_dead_answer_reaches_a_run_whose_turn_read_it_before(
    deployed: Deployed, two: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = waiting(deployed, two)
    (row,) = run(deployed.aws.store.list_hooks()).items
    dead = HookDecided(
        run_id=run_id, hook_id=row.hook_id, decision_id="d", payload="1", decided_at=1
    )
    deployed.send("run-dead.fifo", dead)
    note = Attention(kind="BLOCKED", reason="r", since=1)
    blocked = replace(deployed.header(run_id), attention=note)
    run(deployed.aws.store.update_header(blocked))
    before_the_next_header(deployed, monkeypatch, lambda: deployed.deliver("run-dead.fifo"))
    deployed.send("run.fifo", TimerDue(run_id=run_id, wait_id="none", arm=1, due=1))
    deployed.deliver("run.fifo", 1)
    deployed.due_now("run.fifo")
    deployed.pump()
    decided = run(deployed.aws.store.get_hook(run_id, row.hook_id))
    assert decided is not None
    assert decided.status is HookStatus.RECEIVED
    assert [wait.name for wait in deployed.header(run_id).waiting] == ["second"]
