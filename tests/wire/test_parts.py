"""Replies that hold a part of what was asked, and writes that meet themselves."""

from __future__ import annotations

import json
from base64 import b64encode
from binascii import crc32
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from stepwell.adapters.aws.clients import ATTEMPTS
from stepwell.engine.ports import TransientError
from tests.contract.given import chunk, commit, definition, header, hook, run, step_row, wake
from tests.wire.door import Asked
from tests.wire.faults import EMPTY_200, HTML_200, LOST, Fault, Reply
from tests.wire.wire import TABLE, Wire

Rewrite = Callable[[dict[str, Any]], None]
HOUR = 60 * 60_000


def rewritten(rewrite: Rewrite) -> Fault:
    """A reply of DynamoDB's, with something else in it."""

    def reply(_service: str, done: Reply | None) -> bytes:
        assert done is not None
        content = json.loads(done.body)
        rewrite(content)
        made = replace(done, body=json.dumps(content).encode())
        kept = tuple(each for each in made.headers if each[0].lower() != "x-amz-crc32")
        return replace(made, headers=kept).head() + made.body

    return Fault(name="rewritten", done=True, reply=reply)


class InTurn:
    """A plan: the replies to an operation are rewritten one after the other, then no more."""

    def __init__(self, operation: str, *rewrites: Rewrite) -> None:
        self._operation = operation
        self._left = list(rewrites)

    def __call__(self, asked: Asked) -> Fault | None:
        """What the door asks."""
        if asked.operation != self._operation or not self._left:
            return None
        return rewritten(self._left.pop(0))


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses of the table between two parts of a batch."""
    pauses: list[float] = []
    monkeypatch.setattr("stepwell.adapters.aws.table.time", SimpleNamespace(sleep=pauses.append))
    return pauses


# A batch that is read in part


def leave(number: int) -> Rewrite:
    """Leave some of the items unread."""

    def rewrite(content: dict[str, Any]) -> None:
        items = content["Responses"][TABLE]
        left = [{"pk": item["pk"], "sk": item["sk"]} for item in items[:number]]
        content["Responses"][TABLE] = items[number:]
        content["UnprocessedKeys"] = {TABLE: {"Keys": left}}

    return rewrite


def published(wire: Wire) -> list[str]:
    names = ["a", "b", "c", "d"]
    for name in names:
        run(wire.store.publish(definition(name)))
    wire.forget()
    return names


def test_what_a_batch_leaves_unread_is_asked_for_again(wire: Wire, slept: list[float]) -> None:
    names = published(wire)
    wire.door.plan = InTurn("BatchGetItem", leave(3), leave(3), leave(1))
    page = run(wire.store.list_definitions())
    assert [each.name for each in page.items] == names
    assert wire.door.attempts("BatchGetItem") == [1] * 4
    assert len(slept) == 1  # once it brought nothing


def test_a_batch_that_brings_nothing_again_and_again_is_transient(
    wire: Wire, slept: list[float]
) -> None:
    published(wire)
    wire.door.plan = InTurn("BatchGetItem", *[leave(4)] * 10)
    with pytest.raises(TransientError, match="unread"):
        run(wire.store.list_definitions())
    assert wire.door.attempts("BatchGetItem") == [1] * ATTEMPTS
    assert all(0 <= pause <= 0.05 * 2**n for n, pause in enumerate(slept, 1))
    assert len(set(slept)) == ATTEMPTS - 1


# Pages with nothing on them


def empty(content: dict[str, Any]) -> None:
    """A page that ends before its first item."""
    first = content["Items"][0]
    content["Items"], content["Count"] = [], 0
    content["LastEvaluatedKey"] = {"pk": first["pk"], "sk": {"S": "!"}}


def go_on(content: dict[str, Any]) -> None:
    """A page after which there may be more, and is not."""
    last = content["Items"][-1]
    content["LastEvaluatedKey"] = {"pk": last["pk"], "sk": last["sk"]}


@pytest.mark.parametrize("pages", [(empty,), (empty, empty), (go_on,), (empty, go_on)])
def test_pages_with_nothing_on_them_end_no_load(wire: Wire, pages: tuple[Rewrite, ...]) -> None:
    async def write() -> None:
        await wire.store.put_header(header())
        await wire.store.append("run", commit(1, events=2))
        await wire.store.put_hook(hook())
        await wire.store.put_step(step_row())

    run(write())
    whole = run(wire.store.load("run"))
    assert whole.header is not None
    wire.forget()
    wire.door.plan = InTurn("Query", *pages)
    assert run(wire.store.load("run")) == whole
    assert wire.door.attempts("Query") == [1] * (len(pages) + 1)


def test_pages_with_nothing_on_them_end_no_output(wire: Wire) -> None:
    for position in (1, 2, 3):
        run(wire.store.put_chunk(chunk(position)))
    wire.door.plan = InTurn("Query", empty, go_on)
    assert len(run(wire.store.get_chunks("run", "step", limit=3))) == 3


# Writes that meet themselves


def test_a_commit_whose_reply_is_lost_meets_itself_and_counts_as_done(wire: Wire) -> None:
    with wire.faulty("dynamodb", LOST):
        assert run(wire.store.append("run", commit(1)))
    assert [asked.operation for asked in wire.door.seen] == ["PutItem", "PutItem", "GetItem"]
    assert len(wire.items("run")) == 1


def test_a_commit_that_was_lost_to_another_turn_is_not_taken_for_an_own_one(wire: Wire) -> None:
    assert run(wire.store.append("run", commit(1, turn="other")))
    with wire.faulty("dynamodb", LOST):
        assert not run(wire.store.append("run", commit(1)))
    (item,) = wire.items("run")
    assert item["turn"] == {"S": "other"}


def test_a_schedule_whose_creation_lost_its_reply_meets_itself_and_stands(wire: Wire) -> None:
    with wire.faulty("scheduler", LOST):
        run(wire.timers.start("run", "wait", 1, wire.clock.now() + HOUR))
    operations = [asked.operation for asked in wire.door.seen]
    assert operations == ["CreateSchedule", "CreateSchedule", "GetSchedule"]
    assert len(wire.schedules("run")) == 1


def test_an_object_whose_reply_is_lost_meets_itself_and_is_not_replaced(wire: Wire) -> None:
    with wire.faulty("s3", LOST):
        run(wire.blobs.put("hash", b"bytes"))
    assert wire.door.attempts("PutObject") == [1, 2]
    assert wire.objects("hash") == {"values/hash": b"bytes"}


def test_a_message_whose_reply_is_lost_is_one_message_within_five_minutes(wire: Wire) -> None:
    with wire.faulty("sqs", LOST):
        run(wire.queue.send(wake()))
    assert wire.door.attempts("SendMessage") == [1, 2]
    assert len(wire.bodies("run.fifo")) == 1


# Objects that are not what was put


@pytest.mark.parametrize("fault", [HTML_200, EMPTY_200], ids=str)
def test_what_does_not_come_from_s3_is_no_object_and_stores_none(wire: Wire, fault: Fault) -> None:
    with wire.faulty("s3", fault, times=ATTEMPTS), pytest.raises(TransientError):
        run(wire.blobs.put("hash", b"bytes"))
    run(wire.blobs.put("hash", b"bytes"))
    with wire.faulty("s3", fault), pytest.raises(TransientError, match="something else"):
        run(wire.blobs.get("hash"))
    assert run(wire.blobs.get("hash")) == b"bytes"


def test_an_object_with_another_checksum_is_read_again_and_not_believed(wire: Wire) -> None:
    run(wire.blobs.put("hash", b"bytes"))

    def reply(_service: str, done: Reply | None) -> bytes:
        assert done is not None
        checksum = b64encode(crc32(b"bytes").to_bytes(4)).decode()
        sent = done.with_header("x-amz-checksum-crc32", checksum)
        return sent.head() + b"bytez"

    fault = Fault(name="altered", done=True, reply=reply)
    with wire.faulty("s3", fault), pytest.raises(TransientError, match="AWS"):
        run(wire.blobs.get("hash"))
    assert run(wire.blobs.get("hash")) == b"bytes"
