"""The AWS queues: what SQS is asked for, what it would refuse, and what happens when it fails."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from botocore.exceptions import ClientError
from hypothesis import example, given
from hypothesis import strategies as st

from stepwell.adapters.aws.batches import BODY_LIMIT
from stepwell.adapters.aws.clients import ATTEMPTS, THREADS, is_transient
from stepwell.adapters.aws.queue import (
    InboxQueue,
    SqsQueue,
    SqsStepQueue,
    back_off,
    batch_response,
    body_of,
    cause_of,
    give_back,
    group_of,
    seconds_up,
)
from stepwell.core.messages import (
    CancelRun,
    ChildNoted,
    ChildReported,
    Continue,
    DeleteRun,
    HookDecided,
    InboxPut,
    LookAgain,
    MapReported,
    MendSignal,
    Message,
    ResumeRun,
    RetryRun,
    SignalsArrived,
    StartRun,
    StepAttempt,
    StepReported,
    TimerDue,
    Wake,
    dump_message,
    load_attempt,
    load_message,
)
from stepwell.core.records import Millis
from stepwell.engine.ports import Delivery, ItemTooLarge, TransientError
from tests.contract.given import NASTY_IDS, cause, run, wake
from tests.contract.messaging import Messaging, open_messaging

START_RUN = StartRun(
    run_id="run", workflow="w", version="1", input="1", input_digest="d", seed="s", created_at=1
)
DECIDED = HookDecided(run_id="run", hook_id="h", decision_id="d", payload="1", decided_at=1)
DUE = TimerDue(run_id="run", wait_id="w", arm=1, due=5)
CANCEL = CancelRun(run_id="run", request_id="r")

#: For each type, two messages that differ in nothing but their cause.
REPORTED = MapReported(run_id="run", map="m*:1", order=2, cause="1 have failed")
NOTED = ChildNoted(run_id="run", child="c:1", child_run="r", order=7)
PUT = InboxPut(run_id="run", entry_id="e", key="k", payload="1", sent_at=1)
PAIRS: list[tuple[Message, Message]] = [
    (START_RUN, START_RUN.model_copy(update={"seed": "s2"})),
    (DECIDED, DECIDED.model_copy(update={"decision_id": "d2"})),
    (DECIDED, DECIDED.model_copy(update={"hook_id": "h2"})),
    (DUE, DUE.model_copy(update={"wait_id": "w2"})),
    (DUE, DUE.model_copy(update={"arm": 2})),
    (DUE, DUE.model_copy(update={"due": 6})),
    (REPORTED, REPORTED.model_copy(update={"map": "n*:1"})),
    (REPORTED, REPORTED.model_copy(update={"order": 3})),
    (REPORTED, REPORTED.model_copy(update={"cause": "it is through"})),
    *(
        (asked, asked.model_copy(update={"request_id": "r2"}))
        for asked in (
            CANCEL,
            LookAgain(run_id="run", request_id="r"),
            ResumeRun(run_id="run", request_id="r", pause="p"),
            RetryRun(run_id="run", request_id="r", after=3),
            DeleteRun(run_id="run", request_id="r", after=3),
            MendSignal(run_id="run", request_id="r", sequence=3, action="redrive"),
        )
    ),
    *(
        (PUT, PUT.model_copy(update=other))
        for other in ({"entry_id": "e2"}, {"key": "k2"}, {"payload": "2"})
    ),
    (Continue(run_id="run", cause="c"), Continue(run_id="run", cause="c2")),
    (Wake(run_id="run", cause="c"), Wake(run_id="run", cause="c2")),
    (Wake(run_id="run", cause="c"), Continue(run_id="run", cause="c")),
    (
        StepReported(run_id="run", step="s:1", order=2, claim="m#1#n"),
        StepReported(run_id="run", step="s:1", order=2, claim="m#2#n"),
    ),
    (
        ChildReported(run_id="run", child="c:1", child_run="r", last_event=7),
        ChildReported(run_id="run", child="c:1", child_run="r", last_event=9),
    ),
    (
        ChildReported(run_id="run", child="c:1", child_run="r", last_event=7),
        ChildReported(run_id="run", child="c:2", child_run="s", last_event=7),
    ),
    (NOTED, NOTED.model_copy(update={"order": 9})),
    (NOTED, NOTED.model_copy(update={"child_run": "s"})),
    (SignalsArrived(run_id="run", until=7), SignalsArrived(run_id="run", until=8)),
]
XML_TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[Messaging]:
    with open_messaging(monkeypatch) as made:
        yield made


async def take(aws: Messaging) -> Delivery:
    delivery = await aws.receive()
    assert delivery is not None
    return delivery


# Sending


def test_a_message_is_delivered_as_it_was_sent(aws: Messaging) -> None:
    async def scenario() -> Delivery:
        await aws.queue.send(wake("é#/..", "c1"))
        return await take(aws)

    delivery = run(scenario())
    assert delivery.body == dump_message(wake("é#/..", "c1"))
    assert delivery.receive_count == 1


def test_a_group_keeps_its_order_and_one_message_of_it_is_in_flight(aws: Messaging) -> None:
    async def scenario() -> list[str]:
        for n in range(5):
            await aws.queue.send(wake(cause=f"c{n}"))
        order = []
        while delivery := await aws.receive():
            assert await aws.receive() is None
            order.append(cause(delivery))
            await aws.delete(delivery)
        return order

    assert run(scenario()) == [f"c{n}" for n in range(5)]


def test_odd_run_ids_are_groups_of_their_own(aws: Messaging) -> None:
    async def scenario() -> set[str]:
        for run_id in NASTY_IDS:
            await aws.queue.send(wake(run_id))
        return {load_message((await take(aws)).body).run_id for _ in NASTY_IDS}

    assert run(scenario()) == set(NASTY_IDS)
    assert len({message.group_id for message in aws.sent()}) == len(NASTY_IDS)


def test_equal_bodies_are_one_message(aws: Messaging) -> None:
    async def scenario() -> None:
        await aws.queue.send(wake())
        await aws.queue.send(wake())

    run(scenario())
    assert len(aws.sent()) == 1


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_messages_of_two_causes_are_both_kept(aws: Messaging, one: Message, other: Message) -> None:
    async def scenario() -> None:
        await aws.queue.send(one)
        await aws.queue.send(other)

    run(scenario())
    assert [load_message(message.body) for message in aws.sent()] == [one, other]


def test_every_type_of_message_has_its_pair_and_its_cause() -> None:
    assert {type(one) for one, _ in PAIRS} == set(get_args(Message))
    for one, other in PAIRS:
        assert (one.type, *cause_of(one)) != (other.type, *cause_of(other))


@pytest.mark.parametrize(
    "message",
    [
        wake(cause=""),
        Continue(run_id="run", cause=""),
        CANCEL.model_copy(update={"request_id": ""}),
    ],
)
def test_a_message_without_a_cause_is_refused(aws: Messaging, message: Message) -> None:
    with pytest.raises(ValueError, match="needs a cause"):
        run(aws.queue.send(message))
    assert aws.sent() == []


def test_a_body_up_to_the_limit_is_taken_and_above_refused(aws: Messaging) -> None:
    room = BODY_LIMIT - len(dump_message(wake(cause="")))
    run(aws.queue.send(wake(cause="x" * room)))
    with pytest.raises(ItemTooLarge) as caught:
        run(aws.queue.send(wake(cause="x" * (room + 1))))
    assert (caught.value.size, caught.value.limit) == (BODY_LIMIT + 1, BODY_LIMIT)
    with pytest.raises(ItemTooLarge):
        run(aws.inbox.send_later(wake(cause="é" * (room // 2 + 1)), 1))
    assert len(aws.sent()) == 1
    assert aws.sent("inbox") == []


@given(XML_TEXT, XML_TEXT.filter(bool))
@example("\uffff", "\ufffe \\ufffe \x00 \x7f")
def test_a_body_holds_only_what_sqs_takes_and_says_the_same(run_id: str, why: str) -> None:
    message = Wake(run_id=run_id, cause=why)
    body = body_of(message)
    assert load_message(body) == message
    for letter in body:
        code = ord(letter)
        assert (
            code in (9, 10, 13)
            or 0x20 <= code <= 0xD7FF
            or 0xE000 <= code <= 0xFFFD
            or (0x10000 <= code <= 0x10FFFF)
        )


@given(XML_TEXT, XML_TEXT)
def test_a_group_is_one_that_sqs_takes_and_one_runs_own(one: str, other: str) -> None:
    for run_id in (one, other):
        group = group_of(run_id)
        assert 1 <= len(group) <= 128
        assert all("!" <= letter <= "~" for letter in group)
        assert group_of(group) != group or group == run_id
    assert (group_of(one) == group_of(other)) == (one == other)


def test_a_plain_run_id_is_its_own_group() -> None:
    assert group_of("0" * 32) == "0" * 32
    assert group_of("x" * 128) == "x" * 128
    assert group_of("x" * 129) != "x" * 129


def test_queues_of_the_wrong_kind_are_refused(aws: Messaging) -> None:
    with pytest.raises(ValueError, match="FIFO"):
        SqsQueue(aws.clients, aws.inbox_url)
    with pytest.raises(ValueError, match="FIFO"):
        InboxQueue(aws.clients, aws.run_url)


# The inbox


@pytest.mark.parametrize("delay", [0, 1, 900])
def test_the_inbox_keeps_a_message_back(aws: Messaging, delay: int) -> None:
    run(aws.inbox.send_later(wake(), delay))
    assert aws.delays() == [delay]


@pytest.mark.parametrize("delay", [-1, 901])
def test_a_delay_that_sqs_does_not_know_is_refused(aws: Messaging, delay: int) -> None:
    with pytest.raises(ValueError, match="900"):
        run(aws.inbox.send_later(wake(), delay))


# Giving back


async def _give_back(aws: Messaging, receipt: str, delay: Millis = 0) -> bool:
    return await give_back(aws.clients, aws.run_url, receipt, delay)


def test_a_message_given_back_comes_at_once(aws: Messaging) -> None:
    async def scenario() -> int:
        await aws.queue.send(wake())
        assert await _give_back(aws, (await take(aws)).receipt)
        return (await take(aws)).receive_count

    assert run(scenario()) == 2


def test_a_message_given_back_with_a_delay_holds_its_group(aws: Messaging) -> None:
    async def scenario() -> None:
        await aws.queue.send(wake(cause="c1"))
        await aws.queue.send(wake(cause="c2"))
        assert await _give_back(aws, (await take(aws)).receipt, 59_001)
        assert await aws.receive() is None

    run(scenario())
    held = aws.sent()[0]
    assert 59_000 < held.visible_at - held.sent_timestamp < 62_000


@pytest.mark.parametrize("delay", [0, 1_000])
def test_a_receipt_of_a_deleted_message_is_stale(aws: Messaging, delay: int) -> None:
    async def scenario() -> bool:
        await aws.queue.send(wake())
        delivery = await take(aws)
        await aws.delete(delivery)
        return await _give_back(aws, delivery.receipt, delay)

    assert not run(scenario())


def test_a_receipt_that_has_expired_is_stale(aws: Messaging) -> None:
    aws.fault("ChangeMessageVisibility", "expired")
    assert not run(_give_back(aws, "receipt"))


@given(st.integers(min_value=0, max_value=10**9))
def test_seconds_are_never_fewer_than_asked(ms: int) -> None:
    assert ms <= seconds_up(ms) * 1000 < ms + 1000


def test_the_back_off_grows_to_five_minutes_and_no_further() -> None:
    pauses = [back_off(count) for count in (0, 1, 2, 3, 9, 10, 1_000_000)]
    assert pauses == [1_000, 1_000, 2_000, 4_000, 256_000, 300_000, 300_000]


def test_a_batch_response_names_the_failed_in_order() -> None:
    assert batch_response(["a", "b", "c"], ["c", "a"]) == {
        "batchItemFailures": [{"itemIdentifier": "a"}, {"itemIdentifier": "c"}]
    }
    assert batch_response(["a"], []) == {"batchItemFailures": []}
    with pytest.raises(ValueError, match="not in the batch"):
        batch_response(["a"], ["b"])


# Faults


@pytest.mark.parametrize("kind", ["throttle", "500", "reset", "lost", "timeout"])
def test_a_fault_in_passing_is_passed_over_and_nothing_is_sent_twice(
    aws: Messaging, kind: str
) -> None:
    left = aws.fault("SendMessage", *[kind] * (ATTEMPTS - 1))
    run(aws.queue.send(wake()))
    assert left == []
    assert len(aws.sent()) == 1


@pytest.mark.parametrize("kind", ["throttle", "500", "reset", "lost", "timeout"])
def test_attempts_are_bounded_and_what_is_left_is_transient(aws: Messaging, kind: str) -> None:
    seen = aws.count("SendMessage")
    aws.fault("SendMessage", *[kind] * (ATTEMPTS + 1))
    with pytest.raises(TransientError, match="AWS"):
        run(aws.queue.send(wake()))
    assert len(seen) == ATTEMPTS
    assert len(aws.slept) == ATTEMPTS - 1
    assert len(aws.sent()) == (1 if kind in ("lost", "timeout") else 0)


@pytest.mark.parametrize("kind", ["throttle", "500", "reset", "timeout"])
def test_giving_back_fails_in_passing_too(aws: Messaging, kind: str) -> None:
    aws.fault("ChangeMessageVisibility", *[kind] * ATTEMPTS)
    with pytest.raises(TransientError):
        run(_give_back(aws, "receipt"))


def test_a_refusal_is_not_tried_again_and_not_called_transient(aws: Messaging) -> None:
    seen = aws.count("SendMessage")
    aws.fault("SendMessage", "denied")
    with pytest.raises(ClientError, match="AccessDenied"):
        run(aws.queue.send(wake()))
    assert len(seen) == 1


@pytest.mark.parametrize(
    ("code", "status", "transient"),
    [
        ("AWS.SimpleQueueService.RequestThrottled", 403, True),
        ("Unheard", 503, True),
        ("Unheard", 429, True),
        ("Unheard", 400, False),
        ("ValidationException", 400, False),
        ("AccessDenied", 403, False),
    ],
)
def test_what_may_work_later_is_told_from_what_may_not(
    code: str, status: int, transient: bool
) -> None:
    reply: Any = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    assert is_transient(ClientError(reply, "SendMessage")) is transient


def test_a_queue_that_is_not_there_is_no_fault_in_passing(aws: Messaging) -> None:
    with pytest.raises(ClientError, match=r"QueueDoesNotExist|NonExistentQueue"):
        run(SqsQueue(aws.clients, aws.run_url.replace("run", "other")).send(wake()))


def test_a_call_does_not_hold_up_the_loop(aws: Messaging) -> None:
    free = threading.Event()

    async def scenario() -> str:
        call = asyncio.create_task(aws.clients.call(lambda: "late" if free.wait(5) else "never"))
        await asyncio.sleep(0)
        free.set()
        return await call

    assert run(scenario()) == "late"


def test_every_client_has_bounded_attempts_and_timeouts(aws: Messaging) -> None:
    for client in (aws.clients.sqs, aws.clients.scheduler, aws.clients.s3):
        config: Any = client.meta.config
        assert config.retries == {"mode": "standard", "total_max_attempts": ATTEMPTS}
        assert config.connect_timeout <= 5
        assert config.read_timeout <= 10
        assert config.max_pool_connections >= THREADS


# The step queue


ATTEMPT = StepAttempt(run_id="run", step="s:1", name="s", order=2)


def test_an_attempt_arrives_as_it_was_sent(aws: Messaging) -> None:
    steps = SqsStepQueue(aws.clients, aws.inbox_url)
    run(steps.send(ATTEMPT))
    (message,) = aws.sent("inbox")
    assert load_attempt(message.body) == ATTEMPT
    assert steps.sent == 1


def test_an_attempt_above_the_limit_is_refused(aws: Messaging) -> None:
    steps = SqsStepQueue(aws.clients, aws.inbox_url)
    with pytest.raises(ItemTooLarge):
        run(steps.send(ATTEMPT.model_copy(update={"name": "x" * BODY_LIMIT})))
    assert steps.sent == 0


def test_steps_do_not_go_to_a_fifo_queue(aws: Messaging) -> None:
    with pytest.raises(ValueError, match="standard"):
        SqsStepQueue(aws.clients, aws.run_url)
