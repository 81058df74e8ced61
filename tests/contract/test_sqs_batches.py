"""Batches on SQS, of which some messages are taken and others not; and the signal queue."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from stepwell.adapters.aws import batches
from stepwell.adapters.aws.batches import BODY_LIMIT
from stepwell.adapters.aws.clients import ATTEMPTS
from stepwell.adapters.aws.signal_queue import (
    SIGNAL_LIMIT,
    SignalForgotten,
    SignalLater,
    SqsSignalQueue,
    load_signal_body,
)
from stepwell.adapters.aws.signal_timers import AskingSignalTimers, signal_schedule_name
from stepwell.core.messages import SignalSent, dump_message, load_message, load_signal
from stepwell.core.signals import StreamKey
from stepwell.engine.ports import ItemTooLarge, TransientError
from tests.contract.given import (
    MINUTE,
    NASTY_IDS,
    START,
    STREAM_RUN,
    run,
    sent_signal,
    wake,
)
from tests.contract.messaging import SIGNAL_TARGET, Messaging, open_messaging

HOUR = 60 * MINUTE
OTHER = StreamKey("chat", "c2")
#: Why a message is not taken: code, and whether the sender is at fault.
Reason = tuple[str, bool]
BROKEN: Reason = ("InternalError", False)
THROTTLED: Reason = ("RequestThrottled", True)
WRONG: Reason = ("InvalidMessageContents", True)


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[Messaging]:
    with open_messaging(monkeypatch) as made:
        monkeypatch.setattr(batches, "time", SimpleNamespace(sleep=made.slept.append))
        yield made


def refuse(
    aws: Messaging, monkeypatch: pytest.MonkeyPatch, *rounds: Mapping[str, Reason]
) -> list[list[str]]:
    """Let SQS not take the messages that hold these texts, in one request after the other.

    Returns the bodies of each request, as they are made.
    """
    send, left, asked = aws.clients.sqs.send_message_batch, list(rounds), list[list[str]]()

    def send_message_batch(*, QueueUrl: str, Entries: Sequence[Any]) -> Any:  # noqa: N803
        asked.append([entry["MessageBody"] for entry in Entries])
        reasons = left.pop(0) if left else {}
        failed, taken = [], []
        for entry in Entries:
            reason = next(
                (why for text, why in reasons.items() if text in entry["MessageBody"]), None
            )
            if reason is None:
                taken.append(entry)
            else:
                code, fault = reason
                failed.append({"Id": entry["Id"], "Code": code, "SenderFault": fault})
        reply: Any = send(QueueUrl=QueueUrl, Entries=taken) if taken else {"Successful": []}
        return {**reply, "Failed": failed}

    monkeypatch.setattr(aws.clients.sqs, "send_message_batch", send_message_batch)
    return asked


def signals(aws: Messaging) -> list[str]:
    """The ids of the signals in the queue, in their order."""
    return [load_signal(each.body).signal_id for each in aws.sent("signal.fifo")]


# Messages to runs


def test_messages_to_runs_go_ten_at_a_time_each_to_its_group(aws: Messaging) -> None:
    asked = aws.count("SendMessageBatch")
    run(aws.queue.send_all([wake(f"run {n}") for n in range(23)]))
    assert len(asked) == 3
    assert {load_message(each.body).run_id for each in aws.sent()} == {
        f"run {n}" for n in range(23)
    }
    assert len({each.group_id for each in aws.sent()}) == 23


def test_nothing_to_send_asks_for_nothing(aws: Messaging) -> None:
    asked = aws.count("SendMessageBatch")
    run(aws.queue.send_all([]))
    run(aws.signals.send([]))
    assert asked == []


def test_a_batch_is_no_larger_than_one_message_may_be(aws: Messaging) -> None:
    asked = aws.count("SendMessageBatch")
    room = BODY_LIMIT // 2 - len(dump_message(wake("run 1", "")))
    run(aws.queue.send_all([wake(f"run {n}", "x" * room) for n in range(4)]))
    assert len(asked) == 2
    run(aws.queue.send_all([wake(f"run {n}", "y" * (room + 1)) for n in range(4, 6)]))
    assert len(asked) == 4
    assert len(aws.sent()) == 6


def test_what_has_no_cause_or_is_too_large_is_refused_before_anything_is_sent(
    aws: Messaging,
) -> None:
    with pytest.raises(ValueError, match="needs a cause"):
        run(aws.queue.send_all([wake("one"), wake("two", "")]))
    with pytest.raises(ItemTooLarge):
        run(aws.queue.send_all([wake("one"), wake("two", "x" * BODY_LIMIT)]))
    assert aws.sent() == []


@pytest.mark.parametrize("reason", [BROKEN, THROTTLED])
def test_what_was_not_taken_is_sent_again(
    aws: Messaging, monkeypatch: pytest.MonkeyPatch, reason: Reason
) -> None:
    asked = refuse(aws, monkeypatch, {"run 1": reason, "run 2": reason}, {"run 2": reason})
    run(aws.queue.send_all([wake(f"run {n}") for n in range(4)]))
    assert [len(each) for each in asked] == [4, 2, 1]
    assert len(aws.sent()) == 4
    assert len(aws.slept) == 2


@pytest.mark.parametrize("reason", [BROKEN, THROTTLED])
def test_what_is_never_taken_is_transient_and_the_others_are_sent(
    aws: Messaging, monkeypatch: pytest.MonkeyPatch, reason: Reason
) -> None:
    asked = refuse(aws, monkeypatch, *[{"run 1": reason}] * ATTEMPTS)
    with pytest.raises(TransientError, match=reason[0]):
        run(aws.queue.send_all([wake(f"run {n}") for n in range(3)]))
    assert len(asked) == ATTEMPTS
    assert len(aws.sent()) == 2
    assert len(aws.slept) == ATTEMPTS - 1


def test_what_cannot_be_taken_is_not_sent_again(
    aws: Messaging, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = refuse(aws, monkeypatch, {"run 1": BROKEN, "run 2": WRONG})
    with pytest.raises(ClientError, match="InvalidMessageContents"):
        run(aws.queue.send_all([wake(f"run {n}") for n in range(3)]))
    assert len(asked) == 1


@pytest.mark.parametrize("kind", ["throttle", "500", "reset", "lost", "timeout"])
def test_a_fault_in_passing_of_a_batch_is_passed_over(aws: Messaging, kind: str) -> None:
    left = aws.fault("SendMessageBatch", *[kind] * (ATTEMPTS - 1))
    run(aws.queue.send_all([wake("one"), wake("two")]))
    assert left == []
    assert len(aws.sent()) == 2


# Signals


def test_a_signal_is_of_the_group_of_its_stream_run(aws: Messaging) -> None:
    run(aws.signals.send([sent_signal("s1"), sent_signal("s1", OTHER)]))
    assert [each.group_id for each in aws.sent("signal.fifo")] == [STREAM_RUN.owner, OTHER.owner]


def test_a_signal_that_is_not_taken_is_not_overtaken(
    aws: Messaging, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(aws, monkeypatch, *[{'"s1"': BROKEN}] * 2, {'"s1"': THROTTLED})
    run(aws.signals.send([sent_signal(f"s{n}") for n in range(4)]))
    assert signals(aws) == ["s0", "s1", "s2", "s3"]


def test_after_a_signal_that_cannot_be_sent_none_of_its_stream_run_is(
    aws: Messaging, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(aws, monkeypatch, {}, *[{'"s1"': BROKEN}] * ATTEMPTS)
    with pytest.raises(TransientError):
        run(aws.signals.send([sent_signal(f"s{n}") for n in range(4)]))
    assert signals(aws) == ["s0"]


def test_signals_of_many_stream_runs_go_ten_at_a_time(aws: Messaging) -> None:
    asked = aws.count("SendMessageBatch")
    keys = [StreamKey("chat", f"c{n}") for n in range(12)]
    run(aws.signals.send([sent_signal(f"s{n}", key) for key in keys for n in (1, 2)]))
    assert len(asked) == 4
    assert len(aws.sent("signal.fifo")) == 24


def test_no_two_signals_share_a_deduplication_id(aws: Messaging) -> None:
    keys = [StreamKey(one, two) for one in NASTY_IDS[:6] for two in ("b", "#b", "b#c")]
    wanted = [sent_signal(each, key) for key in keys for each in ("s", "s1", "1:s")]
    run(aws.signals.send(wanted))
    assert len(aws.sent("signal.fifo")) == len(wanted)


def test_a_signal_up_to_what_a_row_takes_is_sent(aws: Messaging) -> None:
    room = SIGNAL_LIMIT - len(sent_signal(payload="").model_dump_json(exclude_none=True))
    run(aws.signals.send([sent_signal(payload="x" * room)]))
    with pytest.raises(ItemTooLarge, match="signal to stream run chat/c1"):
        run(aws.signals.send([sent_signal("s2"), sent_signal("s1", payload="x" * (room + 1))]))
    assert signals(aws) == ["s1"]


def test_signals_go_to_a_fifo_queue(aws: Messaging) -> None:
    with pytest.raises(ValueError, match="FIFO"):
        SqsSignalQueue(aws.clients, aws.inbox_url)
    assert aws.signals.name == "signal.fifo"


# Signals that are sent later


@pytest.mark.parametrize("due", [START - HOUR, START])
def test_a_signal_whose_time_has_passed_goes_to_its_queue_at_once(aws: Messaging, due: int) -> None:
    run(aws.signal_timers.schedule(sent_signal(due=due)))
    assert signals(aws) == ["s1"]
    assert aws.sent("inbox") == []


def test_up_to_fifteen_minutes_the_inbox_keeps_a_signal_back(aws: Messaging) -> None:
    later = sent_signal(due=START + 15 * MINUTE)
    run(aws.signal_timers.schedule(later))
    assert aws.delays() == [900]
    (message,) = aws.sent("inbox")
    assert load_signal_body(message.body) == SignalLater(signal=later)
    assert aws.schedules() == []


def test_beyond_that_a_schedule_sends_it_to_its_group(aws: Messaging) -> None:
    later = sent_signal(due=START + 15 * MINUTE + 1, payload='"<aws.scheduler.execution-id>"')
    run(aws.signal_timers.schedule(later))
    run(aws.signal_timers.schedule(later))
    (schedule,) = aws.schedules()
    target = schedule["Target"]
    assert target["Arn"] == SIGNAL_TARGET.queue_arn
    assert target["SqsParameters"] == {"MessageGroupId": STREAM_RUN.owner}
    assert load_signal(target["Input"]) == later
    assert "<" not in target["Input"]
    assert schedule["Name"].startswith(f"{STREAM_RUN.owner}.")
    assert aws.sent("inbox") == []


def test_schedules_of_signals_have_names_of_their_own() -> None:
    keys = [StreamKey(one, two) for one in NASTY_IDS[:6] for two in ("b", "#b", "b#c")]
    names = {signal_schedule_name(key, each) for key in keys for each in NASTY_IDS}
    assert len(names) == len(keys) * len(NASTY_IDS)


def test_who_may_make_no_schedules_asks_the_worker(aws: Messaging) -> None:
    timers = AskingSignalTimers(aws.signals)
    later = sent_signal(due=START + HOUR)
    run(timers.schedule(later))
    run(timers.cancel(STREAM_RUN, "s1"))
    found = [load_signal_body(each.body) for each in aws.sent("signal.fifo")]
    forgotten = SignalForgotten(stream="chat", stream_run="c1", signal_id="s1")
    assert found == [SignalLater(signal=later), forgotten]
    assert {each.group_id for each in aws.sent("signal.fifo")} == {STREAM_RUN.owner}
    assert aws.schedules() == []


def test_what_is_asked_about_a_signal_does_not_swallow_it(aws: Messaging) -> None:
    timers = AskingSignalTimers(aws.signals)
    first, second = sent_signal(due=START + 1), sent_signal(due=START + 2)
    for later in (first, second, second):
        run(timers.schedule(later))
    run(timers.cancel(STREAM_RUN, "s1"))
    run(aws.signals.send([first]))
    types = [json.loads(each.body)["type"] for each in aws.sent("signal.fifo")]
    assert types == ["signal_later", "signal_later", "signal_forgotten", "signal"]


def test_a_signal_is_read_as_what_it_is() -> None:
    assert isinstance(load_signal_body(sent_signal().model_dump_json()), SignalSent)
