"""Signals on AWS: numbered by the worker, sent by the inbox, kept by the sweeper."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from stepwell import (
    emit,
    get_checkpoint,
    get_current_signal,
    save_checkpoint,
    set_result,
    stream_step,
    stream_workflow,
    terminate,
)
from stepwell.adapters.aws.clients import ATTEMPTS
from stepwell.adapters.aws.handlers.telemetry import metrics
from stepwell.adapters.aws.signal_queue import SIGNAL_LIMIT, SignalForgotten, SignalLater
from stepwell.core.messages import SignalSent
from stepwell.core.records import RunStatus, blob_reference
from stepwell.core.signals import StreamKey, keyed_signal_id
from tests.contract.given import (
    MINUTE,
    START,
    STREAM_RUN,
    run,
    sent_signal,
    subscription,
)
from tests.integration.aws.deployment import MAX_RECEIVES, Deployed

HOUR = 60 * MINUTE
OTHER = StreamKey("chat", "c2")


def send(deployed: Deployed, *signals: SignalSent) -> None:
    run(deployed.aws.signals.send(signals))


def numbered(deployed: Deployed, key: StreamKey = STREAM_RUN) -> list[str]:
    """The ids of the signals of a stream run by number."""
    found = run(deployed.aws.ports.streams.read(key, after=0, limit=100))
    assert [each.sequence for each in found] == list(range(1, len(found) + 1))
    return [each.signal.signal_id for each in found]


def woken(deployed: Deployed) -> list[tuple[str, int]]:
    """The runs that were told of signals, and up to which."""
    bodies = deployed.bodies("run.fifo")
    return [(each["run_id"], each["until"]) for each in bodies if each["type"] == "signals"]


@contextmanager
def counted() -> Iterator[dict[str, list[float]]]:
    """The metrics that are counted meanwhile, by name."""
    found: dict[str, list[float]] = {}
    metrics.clear_metrics()
    yield found
    found |= {name: list(each["Value"]) for name, each in metrics.metric_set.items()}


# The worker


def test_signals_are_numbered_in_their_order_and_subscriptions_are_woken_once(
    deployed: Deployed,
) -> None:
    run(deployed.aws.ports.streams.subscribe(subscription()))
    send(deployed, *(sent_signal(f"s{n}") for n in range(10)))
    with counted() as metric:
        assert deployed.deliver("signal.fifo") == []
    assert numbered(deployed) == [f"s{n}" for n in range(10)]
    assert woken(deployed) == [("sub-answer", 10)]
    assert metric["SignalsSequenced"] == [10]
    assert metric["SignalAge"] == [0]
    assert "SignalsUnsubscribed" not in metric


def test_signals_to_nobody_are_numbered_and_counted(deployed: Deployed) -> None:
    deployed.clock.advance(700)
    send(deployed, sent_signal())
    with counted() as metric:
        deployed.deliver("signal.fifo")
    assert numbered(deployed) == ["s1"]
    assert (metric["SignalsUnsubscribed"], metric["SignalAge"]) == ([1], [700])


def test_a_signal_that_comes_twice_has_one_number(deployed: Deployed) -> None:
    for _ in range(2):
        deployed.send("signal.fifo", sent_signal())
        deployed.deliver("signal.fifo")
        for message in deployed.held("signal.fifo"):
            message.deleted = True
        deployed.send("signal.fifo", sent_signal(payload="{}"))
        with counted() as metric:
            deployed.deliver("signal.fifo")
        assert "SignalsSequenced" not in metric
    assert numbered(deployed) == ["s1"]


def test_what_cannot_be_read_is_a_dead_letter_and_holds_up_nobody(deployed: Deployed) -> None:
    deployed.send("signal.fifo", sent_signal("s1"))
    queue, sqs = deployed.url("signal.fifo"), deployed.aws.clients.sqs
    group = STREAM_RUN.owner
    sqs.send_message(QueueUrl=queue, MessageBody='{"type":"signal"}', MessageGroupId=group)
    deployed.send("signal.fifo", sent_signal("s2"))
    assert deployed.deliver("signal.fifo") == []
    assert numbered(deployed) == ["s1", "s2"]
    (record,) = deployed.event("signal-dead.fifo")["Records"]
    assert record["body"] == '{"type":"signal"}'
    assert record["attributes"]["MessageGroupId"] == group
    assert record["messageAttributes"]["code"]["stringValue"] == "InvalidMessage"
    assert "payload: missing" in record["messageAttributes"]["reason"]["stringValue"]


def test_a_signal_that_fits_no_row_is_a_dead_letter(deployed: Deployed) -> None:
    deployed.send("signal.fifo", sent_signal("s1", payload=f'"{"x" * SIGNAL_LIMIT}"'))
    deployed.send("signal.fifo", sent_signal("s2"))
    assert deployed.deliver("signal.fifo") == []
    assert numbered(deployed) == ["s2"]
    (record,) = deployed.event("signal-dead.fifo")["Records"]
    assert record["messageAttributes"]["code"]["stringValue"] == "ItemTooLarge"


def test_what_cannot_become_a_dead_letter_comes_again_and_the_others_do_not(
    deployed: Deployed,
) -> None:
    deployed.send("signal.fifo", "not JSON")
    send(deployed, sent_signal())
    sqs = deployed.aws.clients.sqs
    left = deployed.fault(sqs, "SendMessage", *["throttle"] * ATTEMPTS)
    assert len(deployed.deliver("signal.fifo")) == 1
    assert left == []
    assert numbered(deployed) == ["s1"]
    assert [each.body for each in deployed.held("signal.fifo")] == ["not JSON"]
    assert deployed.held("signal-dead.fifo") == []


def test_what_fails_in_passing_comes_again_from_the_first_of_its_stream_run_on(
    deployed: Deployed,
) -> None:
    send(deployed, *(sent_signal(f"s{n}") for n in range(3)), sent_signal("t", OTHER))
    left = deployed.fault(deployed.aws.table.client, "PutItem", *["throttle"] * ATTEMPTS)
    failed = deployed.deliver("signal.fifo")
    assert left == []
    assert len(failed) == 3
    assert numbered(deployed, OTHER) == ["t"]
    assert numbered(deployed) == []
    assert deployed.hidden_for("signal.fifo") == [1, 0, 0]
    deployed.due_now("signal.fifo")
    assert deployed.deliver("signal.fifo") == []
    assert sorted(numbered(deployed)) == ["s0", "s1", "s2"]


def test_signals_whose_wakes_were_lost_wake_when_they_come_again(deployed: Deployed) -> None:
    run(deployed.aws.ports.streams.subscribe(subscription()))
    send(deployed, sent_signal())
    sqs = deployed.aws.clients.sqs
    deployed.fault(sqs, "SendMessageBatch", *["throttle"] * ATTEMPTS)
    assert len(deployed.deliver("signal.fifo")) == 1
    assert (numbered(deployed), woken(deployed)) == (["s1"], [])
    deployed.due_now("signal.fifo")
    with counted() as metric:
        assert deployed.deliver("signal.fifo") == []
    assert woken(deployed) == [("sub-answer", 1)]
    assert "SignalsSequenced" not in metric


def test_ten_signals_that_are_large_together_become_several_rows(deployed: Deployed) -> None:
    send(deployed, *(sent_signal(f"s{n}", payload=f'"{"x" * 60_000}"') for n in range(10)))
    assert deployed.deliver("signal.fifo") == []
    assert numbered(deployed) == [f"s{n}" for n in range(10)]


def test_a_signal_for_later_is_kept_until_its_time(deployed: Deployed) -> None:
    later = sent_signal(due=START + 10 * MINUTE)
    deployed.send("signal.fifo", SignalLater(signal=later))
    send(deployed, sent_signal("s2"))
    assert deployed.deliver("signal.fifo") == []
    assert numbered(deployed) == ["s2"]
    deployed.clock.advance(10 * MINUTE)
    deployed.due_now("inbox")
    deployed.deliver("inbox")
    deployed.deliver("signal.fifo")
    assert numbered(deployed) == ["s2", "s1"]


def test_a_signal_for_much_later_is_a_schedule_and_can_be_forgotten(deployed: Deployed) -> None:
    scheduler: Any = deployed.aws.clients.scheduler
    deployed.send("signal.fifo", SignalLater(signal=sent_signal(due=START + HOUR)))
    deployed.deliver("signal.fifo")
    assert len(scheduler.list_schedules(GroupName="stepwell")["Schedules"]) == 1
    stream, stream_run = STREAM_RUN
    forgotten = SignalForgotten(stream=stream, stream_run=stream_run, signal_id="s1")
    deployed.send("signal.fifo", forgotten)
    deployed.deliver("signal.fifo")
    assert scheduler.list_schedules(GroupName="stepwell")["Schedules"] == []
    assert numbered(deployed) == []


def test_a_signal_for_later_whose_time_has_come_is_numbered(deployed: Deployed) -> None:
    deployed.send("signal.fifo", SignalLater(signal=sent_signal(due=START)))
    deployed.deliver("signal.fifo")
    assert numbered(deployed) == ["s1"]


# The inbox


def outside(deployed: Deployed, **fields: Any) -> str:
    """Put a signal on the inbox and deliver it. The id of its SQS message."""
    told = {"type": "signal", "stream": "chat", "signal_type": "said", "stream_run_id": "c1"}
    message_id = deployed.send("inbox", told | fields)
    deployed.deliver("inbox")
    return message_id


def refused(deployed: Deployed) -> tuple[str, str]:
    assert deployed.held("signal.fifo") == []
    (record,) = deployed.event("inbox-dead")["Records"]
    attributes = record["messageAttributes"]
    return attributes["code"]["stringValue"], attributes["reason"]["stringValue"]


def test_a_signal_from_outside_is_sent_to_its_stream_run(deployed: Deployed) -> None:
    message_id = outside(deployed, payload={"n": 1}, metadata={"by": "é"})
    (body,) = deployed.bodies("signal.fifo")
    assert body == {
        "type": "signal",
        "stream": "chat",
        "stream_run": "c1",
        "signal_id": keyed_signal_id(STREAM_RUN, f"sqs-{message_id}"),
        "signal_type": "said",
        "payload": '{"n":1}',
        "metadata": '{"by":"é"}',
        "published_at": START,
    }
    deployed.deliver("signal.fifo")
    assert numbered(deployed) == [body["signal_id"]]


def test_a_signal_from_outside_that_comes_twice_is_one_signal(deployed: Deployed) -> None:
    deployed.send("inbox", {"type": "signal", "stream": "chat", "signal_type": "said"})
    event = deployed.event("inbox")
    for _ in range(2):
        deployed.inbox.handle(event, None)  # type: ignore[arg-type]
        deployed.clock.advance(1)
    deployed.deliver("signal.fifo")
    assert len(numbered(deployed, StreamKey("chat", "default"))) == 1


def test_a_signal_has_the_id_that_its_sender_gives(deployed: Deployed) -> None:
    outside(deployed, signal_id="mine")
    outside(deployed, idempotency_key="k")
    outside(deployed, idempotency_key="k")
    deployed.deliver("signal.fifo")
    assert numbered(deployed) == ["mine", keyed_signal_id(STREAM_RUN, "k")]


def test_a_large_payload_from_outside_is_a_blob_of_its_stream_run(deployed: Deployed) -> None:
    outside(deployed, payload={"text": "x" * 20_000})
    (body,) = deployed.bodies("signal.fifo")
    assert body["payload"].startswith(f"@{STREAM_RUN.owner}/")
    assert len(json.dumps(body)) < 1_000


@pytest.mark.parametrize(
    ("delay", "due"), [("10m", 10 * MINUTE), (7200, 2 * HOUR), ("1.5s", 1_500)]
)
def test_a_signal_with_a_delay_is_sent_later(deployed: Deployed, delay: Any, due: int) -> None:
    outside(deployed, delay=delay, signal_id="s1")
    deployed.deliver("signal.fifo")
    assert numbered(deployed) == []
    schedules: Any = deployed.aws.clients.scheduler.list_schedules(GroupName="stepwell")
    found = schedules["Schedules"] or deployed.bodies("inbox")
    assert len(found) == 1
    deployed.clock.advance(due - 1)
    if deployed.held("inbox"):
        deployed.due_now("inbox")
        deployed.deliver("inbox")
        assert deployed.held("signal.fifo") == []
        deployed.clock.advance(1)
        deployed.due_now("inbox")
        deployed.deliver("inbox")
        deployed.deliver("signal.fifo")
        assert numbered(deployed) == ["s1"]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"stream": ""}, "DefinitionError"),
        ({"stream_run_id": ""}, "DefinitionError"),
        ({"signal_type": "no name"}, "DefinitionError"),
        ({"signal_id": ""}, "DefinitionError"),
        ({"signal_id": "a", "idempotency_key": "b"}, "UsageError"),
        ({"delay": "soon"}, "UsageError"),
        ({"delay": -1}, "UsageError"),
        ({"metadata": "text"}, "InvalidMessage"),
        ({"due": START}, "InvalidMessage"),
    ],
)
def test_a_signal_that_cannot_be_sent_is_refused_with_its_reason(
    deployed: Deployed, fields: dict[str, Any], code: str
) -> None:
    outside(deployed, **fields)
    found, reason = refused(deployed)
    assert found == code
    assert reason


def test_a_signal_that_waits_on_the_inbox_is_sent_when_it_is_due_and_not_before(
    deployed: Deployed,
) -> None:
    later = SignalLater(signal=sent_signal(due=START + MINUTE))
    deployed.send("inbox", later)
    deployed.deliver("inbox")
    assert deployed.held("signal.fifo") == []
    assert deployed.hidden_for("inbox") == [60]
    deployed.clock.advance(MINUTE)
    deployed.due_now("inbox")
    deployed.deliver("inbox")
    (body,) = deployed.bodies("signal.fifo")
    assert SignalSent.model_validate(body) == later.signal


@pytest.mark.parametrize(
    "fields",
    [
        {"due": START + 31 * MINUTE},
        {"payload": "no JSON"},
        {"metadata": "{"},
        {"payload": blob_reference(f"another/{'0' * 64}", 9)},
        {"metadata": blob_reference("0" * 64, 9)},
    ],
)
def test_nobody_slips_a_signal_by_as_one_that_waits(
    deployed: Deployed, fields: dict[str, Any]
) -> None:
    deployed.send("inbox", SignalLater(signal=sent_signal(**({"due": START} | fields))))
    deployed.deliver("inbox")
    assert refused(deployed)[0] in ("NotSoDue", "InvalidMessage")


def test_a_signal_that_waits_may_hold_blobs_of_its_stream_run(deployed: Deployed) -> None:
    own = blob_reference(f"{STREAM_RUN.owner}/{'0' * 64}", 9)
    deployed.send("inbox", SignalLater(signal=sent_signal(payload=own, due=START)))
    deployed.deliver("inbox")
    assert len(deployed.held("signal.fifo")) == 1


# The sweeper


def test_a_dead_signal_is_kept_with_its_stream_run_and_marks_nothing(deployed: Deployed) -> None:
    deployed.send("signal-dead.fifo", sent_signal())
    with counted() as metric:
        assert deployed.deliver("signal-dead.fifo") == []
    (row,) = deployed.kept()
    assert row["run_id"] == STREAM_RUN.owner
    assert "could not be numbered" in row["reason"]
    assert SignalSent.model_validate_json(row["body"]) == sent_signal()
    assert metric["DeadLetters"] == [1]


def test_what_the_worker_refused_is_kept_with_its_reason(deployed: Deployed) -> None:
    deployed.send("signal.fifo", "nonsense")
    deployed.deliver("signal.fifo")
    assert deployed.deliver("signal-dead.fifo") == []
    (row,) = deployed.kept()
    assert row["body"] == "nonsense"
    assert "json_invalid" in row["reason"]


def test_a_signal_that_always_fails_becomes_a_dead_letter(deployed: Deployed) -> None:
    send(deployed, sent_signal())
    for _ in range(MAX_RECEIVES):
        deployed.fault(deployed.aws.table.client, "GetItem", *["throttle"] * ATTEMPTS)
        assert len(deployed.deliver("signal.fifo")) == 1
        deployed.due_now("signal.fifo")
    deployed.deliver("signal.fifo")
    assert len(deployed.held("signal-dead.fifo")) == 1
    deployed.deliver("signal-dead.fifo")
    assert len(deployed.kept()) == 1


@pytest.mark.parametrize(
    ("queue", "message"),
    [
        ("schedule-dead", sent_signal(due=START)),
        ("inbox-dead", SignalLater(signal=sent_signal(due=START))),
    ],
)
def test_a_signal_that_could_not_be_sent_in_time_is_sent_by_the_sweeper(
    deployed: Deployed, queue: str, message: Any
) -> None:
    deployed.send(queue, message)
    deployed.deliver(queue)
    assert deployed.kept() == []
    deployed.deliver("signal.fifo")
    assert numbered(deployed) == ["s1"]


def test_the_sweeper_sends_no_signal_that_shows_what_is_anothers(deployed: Deployed) -> None:
    foreign = blob_reference(f"another/{'0' * 64}", 9)
    deployed.send("inbox-dead", SignalLater(signal=sent_signal(payload=foreign, due=START)))
    deployed.deliver("inbox-dead")
    assert deployed.held("signal.fifo") == []
    assert len(deployed.kept()) == 1


# All of it


@pytest.fixture
def tally() -> Any:
    @stream_workflow
    async def tally(by: str) -> None:
        await emit("tally", "added", {"n": 1})

    @stream_step(stream=tally, signals=["added", "closed"])
    async def adds_up() -> None:
        signal = await get_current_signal()
        total = (await get_checkpoint()) or 0
        if signal is None:
            return
        if signal.signal_type == "closed":
            await set_result(total)
            await terminate()
        else:
            await save_checkpoint(total + signal.payload["n"])

    return tally


def test_a_stream_run_goes_from_its_start_to_its_result(deployed: Deployed, tally: Any) -> None:
    handle = run(deployed.client.with_options(stream_run_id="t1").start(tally, "ann"))
    deployed.pump()
    for n in range(2, 5):
        run(deployed.client.emit("tally", "added", {"n": n}, stream_run_id="t1"))
    deployed.pump()
    assert deployed.header(handle.id).status is RunStatus.SUSPENDED
    outside(deployed, stream="tally", signal_type="closed", stream_run_id="t1", payload={"n": 0})
    deployed.pump()
    header = deployed.header(handle.id)
    assert header.status is RunStatus.COMPLETED
    assert '"adds_up":10' in str(header.result)


def test_how_far_a_subscription_is_behind_is_told_when_signals_come(
    deployed: Deployed, tally: Any
) -> None:
    run(deployed.client.with_options(stream_run_id="t1").start(tally, "ann"))
    deployed.pump()
    for n in range(2, 5):
        run(deployed.client.emit("tally", "added", {"n": n}, stream_run_id="t1"))
        deployed.deliver("signal.fifo")
    with counted() as metric:
        for _ in range(3):
            deployed.deliver("run.fifo", 1)
    assert metric["SignalLag"] == [1, 0, 0], "the first of three took what all of them told of"
