"""What is DynamoDB's and S3's own: keys, indexes, requests, sizes, lost replies, throttling."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import botocore.endpoint
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from hypothesis import given
from hypothesis import strategies as st

from stepwell.adapters.aws import keys, lists
from stepwell.adapters.aws.clients import ATTEMPTS
from stepwell.adapters.aws.items import item_size
from stepwell.adapters.aws.rows import header_item
from stepwell.core.events import Commit, StepCompleted
from stepwell.core.records import (
    UNHEARD,
    Attention,
    Decision,
    HookRow,
    HookStatus,
    RunHeader,
    RunStatus,
    Wait,
)
from stepwell.engine.ports import Store, TransientError
from tests.contract.given import (
    NASTY_IDS,
    START,
    checkpoint,
    chunk,
    commit,
    definition,
    entry,
    header,
    hook,
    run,
    step_row,
    waiting,
)
from tests.contract.storage import BUCKET, REGION, Storage, open_storage

DECISION = Decision(
    status=HookStatus.RECEIVED, decision_id="d1", decided_at=START + 5, payload="true"
)
DAY = 86_400_000

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[Storage]:
    """The adapters on moto, with pauses between attempts left out."""
    monkeypatch.setattr(botocore.endpoint, "time", SimpleNamespace(sleep=lambda _: None))
    with open_storage() as storage:
        yield storage


def requests_of(aws: Storage, work: Any) -> list[str]:
    """The requests that a piece of work makes."""
    aws.requests.clear()
    run(work)
    return list(aws.requests)


# Keys


@given(TEXTS, TEXTS)
def test_different_ids_have_different_key_parts(one: str, other: str) -> None:
    for limit in (70, 1022):
        same = keys.encode(one, limit) == keys.encode(other, limit)
        assert same == (one == other)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=3000))
def test_a_key_part_holds_no_separator_and_keeps_its_limit(text: str) -> None:
    for limit in (100, 1022):
        part = keys.encode(text, limit)
        assert "#" not in part
        assert len(part.encode()) <= limit


@pytest.mark.parametrize("one", ["x" * 5000, "é" * 2500, "#" * 1000, "\U0001f600" * 600])
def test_ids_too_long_for_a_key_are_told_apart_by_their_hash(aws: Storage, one: str) -> None:
    other = one + "y"
    for make in (
        keys.run_key,
        keys.hook_key,
        keys.step_key,
        keys.checkpoint_key,
        keys.workflow_key,
        keys.definition_key,
        keys.digest_key,
    ):
        assert make(one) != make(other)
    assert len(keys.run_key(one).encode()) <= keys.PARTITION_KEY_LIMIT
    assert len(keys.shard_key(one, 3).encode()) <= keys.PARTITION_KEY_LIMIT
    assert len(keys.definition_key(one).encode()) <= keys.PARTITION_KEY_LIMIT
    for sort_key in (
        keys.hook_key(one),
        keys.step_key(one),
        keys.checkpoint_key(one),
        keys.chunk_key(one, 1),
        keys.digest_key(one),
    ):
        assert len(sort_key.encode()) <= keys.SORT_KEY_LIMIT

    async def scenario() -> None:
        for run_id in (one, other):
            await aws.store.put_header(header(run_id, workflow=run_id))
            await aws.store.put_hook(hook(run_id, one))
            await aws.store.put_hook(hook(run_id, other))
        assert (await aws.store.load(one)).header == header(one, workflow=one)
        assert (await aws.store.get_hook(one, other)) == hook(one, other)
        assert [r.run_id for r in (await aws.store.list_runs()).items] == sorted([one, other])
        hooks = (await aws.store.list_hooks()).items
        assert [(r.run_id, r.hook_id) for r in hooks] == sorted(
            [(one, one), (one, other), (other, one), (other, other)]
        )

    run(scenario())


def test_what_looks_like_a_hashed_id_is_not_taken_for_one(aws: Storage) -> None:
    hashed = keys.encode("x" * 5000, keys.SORT_KEY_LIMIT - 2)
    assert keys.hook_key(hashed) != keys.hook_key("x" * 5000)


def test_commit_keys_sort_as_their_numbers_do() -> None:
    numbers = [1, 2, 9, 10, 99_999, 100_000, 100_001, 10**12 - 1]
    assert all(keys.commit_key(a) < keys.commit_key(b) for a, b in pairwise(numbers))
    assert [keys.commit_first(keys.commit_key(n)) for n in numbers] == numbers
    with pytest.raises(ValueError, match="12 digits"):
        keys.commit_key(10**12)


@pytest.mark.parametrize("odd", NASTY_IDS)
def test_the_range_of_a_load_holds_header_steps_log_and_hooks_only(odd: str) -> None:
    for inside in (keys.HEADER, keys.step_key(odd), keys.commit_key(1), keys.hook_key(odd)):
        assert keys.HEADER <= inside <= keys.LOAD_END
    for outside in (keys.checkpoint_key(odd), keys.chunk_key(odd, 1)):
        assert outside > keys.LOAD_END


def test_the_output_of_one_step_is_no_part_of_that_of_another(aws: Storage) -> None:
    async def scenario() -> None:
        await aws.store.put_chunk(chunk(1, step="a"))
        await aws.store.put_chunk(chunk(2, step="a#000000000001"))
        assert await aws.store.get_chunks("run", "a") == (chunk(1, step="a"),)

    run(scenario())


# Indexes and attributes


def test_the_table_is_as_the_design_has_it(aws: Storage) -> None:
    table = aws.table.client.describe_table(TableName="stepwell")["Table"]
    assert table["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"
    projections = {
        index["IndexName"]: index["Projection"]["ProjectionType"]
        for index in table["GlobalSecondaryIndexes"]
    }
    assert projections == {
        "runs": "KEYS_ONLY",
        "wanted": "INCLUDE",
        "expiring": "KEYS_ONLY",
    }
    ttl = aws.table.client.describe_time_to_live(TableName="stepwell")["TimeToLiveDescription"]
    assert ttl == {"TimeToLiveStatus": "ENABLED", "AttributeName": "expires_at"}


def test_an_update_of_a_header_leaves_the_keys_of_index_runs_alone(aws: Storage) -> None:
    def entry() -> dict[str, Any]:
        (item,) = [item for item in aws.items() if item["sk"]["S"] == "A"]
        return {name: item[name] for name in ("listed_in", "created_at")}

    run(aws.store.put_header(header()))
    before = entry()
    ended = header(created_at=START + 9, workflow="x", status=RunStatus.COMPLETED, result="1")
    assert run(aws.store.update_header(ended))
    assert entry() == before


NOTE = Attention(kind="BLOCKED", reason="code", since=START)
WANTED: list[tuple[dict[str, Any], tuple[str, int] | None]] = [
    ({}, None),
    (waiting(("hook", None)), None),
    (waiting(("hook", START + DAY)), None),
    (waiting(("step", None)), ("SUSPENDED", START + UNHEARD)),
    (waiting(("step", None), ("hook", START)), ("SUSPENDED", START + UNHEARD)),
    (waiting(("step", None), ("timer", START + 9)), ("SUSPENDED", START + 9)),
    (waiting(), ("SUSPENDED", START + UNHEARD)),
    (waiting(("timer", START + 9)), ("SUSPENDED", START + 9)),
    (waiting(("timer", START + 9), ("retry", START + 5)), ("SUSPENDED", START + 5)),
    (waiting(("hook", START + 1), ("timer", START + 9)), ("SUSPENDED", START + 9)),
    (waiting(("timer", START + 9), attention=NOTE), ("BLOCKED", START)),
    ({"status": RunStatus.FAILED}, ("FAILED", START)),
    ({"status": RunStatus.FAILED, "attention": NOTE}, ("BLOCKED", START)),
    ({"status": RunStatus.COMPLETED}, None),
    ({"status": RunStatus.CANCELLED}, None),
]


@pytest.mark.parametrize(("update", "expected"), WANTED)
def test_index_wanted_holds_what_is_due_failures_and_notes(
    aws: Storage, update: dict[str, Any], expected: tuple[str, int] | None
) -> None:
    before: tuple[dict[str, Any], ...] = (
        {},
        waiting(("timer", START + 3)),
        {"status": RunStatus.FAILED, "attention": NOTE},
    )

    async def scenario() -> None:
        for n, fields in enumerate(before):
            await aws.store.put_header(header(f"r{n}", **fields))
            assert await aws.store.update_header(header(f"r{n}", **update))

    run(scenario())
    entries = {
        (item["pk"]["S"], item["wanted_in"]["S"].partition("#")[0], int(item["wanted_at"]["N"]))
        for item in aws.items("wanted")
    }
    assert entries == {(f"R#r{n}", *expected) for n in range(3) if expected is not None}


def test_index_wanted_holds_a_hook_while_it_is_pending(aws: Storage) -> None:
    async def scenario() -> None:
        await aws.store.put_hook(hook(hook_id="open", created_at=START + 3, expires_at=START + 9))
        await aws.store.put_hook(hook(hook_id="done"))
        await aws.store.put_hook(hook(hook_id="closed", status=HookStatus.CLOSED))
        await aws.store.decide_hook("run", "done", DECISION)

    run(scenario())
    (entry,) = aws.items("wanted")
    assert entry["sk"] == {"S": "H#open"}
    assert entry["wanted_at"] == {"N": str(START + 3)}
    assert not any("wanted_at" in item for item in aws.items() if item["sk"]["S"] != "H#open")


@pytest.mark.parametrize(
    "update",
    [
        waiting(("timer", START + 5)),
        waiting(("timer", START), attention=NOTE),
        waiting(("hook", START)),
        {"status": RunStatus.COMPLETED},
    ],
)
def test_an_entry_that_lags_makes_no_run_overdue(aws: Storage, update: dict[str, Any]) -> None:
    late, later = header(**waiting(("timer", START))), [header(last_event=2, **update)]

    def change(**_: Any) -> None:
        if later:
            aws.table.put(header_item(later.pop()))

    async def scenario() -> None:
        await aws.store.put_header(late)
        aws.table.client.meta.events.register("after-call.dynamodb.Query", change)
        assert await aws.store.overdue_runs(START + 1, 9) == ()

    run(scenario())
    assert later == []


def test_looking_for_overdue_runs_reads_none_that_are_not(aws: Storage) -> None:
    async def fill() -> None:
        for n in range(20):
            await aws.store.put_header(header(f"r{n}", **waiting(("timer", START + DAY))))

    run(fill())
    aws.requests.clear()
    assert requests_of(aws, aws.store.overdue_runs(START, 50)) == ["Query"] * keys.SHARDS


def test_runs_are_spread_over_the_shards() -> None:
    seen = {keys.shard_of(f"run-{n}") for n in range(100)}
    assert seen == set(range(keys.SHARDS))


def test_the_deadline_of_a_hook_is_no_ttl(aws: Storage) -> None:
    run(aws.store.put_hook(hook(expires_at=START + 1)))
    (item,) = aws.items()
    assert "expires_at" not in item
    assert run(aws.store.get_hook("run", "hook")) == hook(expires_at=START + 1)


def test_a_checkpoint_expires_in_whole_seconds_and_never_early(aws: Storage) -> None:
    async def scenario() -> None:
        await aws.store.put_checkpoint(checkpoint())
        await aws.store.expire_checkpoint("run", "step", START + 1)

    run(scenario())
    (item,) = aws.items()
    assert item["expires_at"] == {"N": str(START // 1000 + 1)}
    run(aws.store.put_checkpoint(checkpoint(save_id="s2")))
    (item,) = aws.items()
    assert "expires_at" not in item


def test_every_definition_stays_under_its_digest(aws: Storage) -> None:
    async def scenario() -> None:
        for version in ("1", "3", "2"):
            await aws.store.publish(definition("orders#1", version))

    run(scenario())
    found = {item["sk"]["S"]: item["version"]["S"] for item in aws.items() if "version" in item}
    assert found == {
        "V#digest of 1": "1",
        "V#digest of 2": "2",
        "V#digest of 3": "3",
        "current": "3",
    }
    assert {item["pk"]["S"] for item in aws.items()} == {"W", "W#orders%231"}


def test_a_published_definition_is_never_replaced(aws: Storage) -> None:
    async def scenario() -> None:
        await aws.store.publish(definition())
        await aws.store.publish(definition(version="2"))
        await aws.store.publish(definition(published_at=START + 5))

    run(scenario())
    (item,) = [item for item in aws.items() if item["sk"]["S"] == "V#digest of 1"]
    assert item["published_at"] == {"N": str(START)}


@pytest.mark.parametrize("done", [0, 1, 2])
def test_publishing_goes_on_where_it_was_broken_off(aws: Storage, done: int) -> None:
    puts = [0]

    def refuse(**_: Any) -> None:
        puts[0] += 1
        if puts[0] == done + 1:
            raise EndpointConnectionError(endpoint_url="x")

    aws.table.client.meta.events.register("before-call.dynamodb.PutItem", refuse)
    with pytest.raises(TransientError):
        run(aws.store.publish(definition()))
    assert run(aws.store.get_definition("orders")) is None
    run(aws.store.publish(definition()))
    assert run(aws.store.get_definition("orders")) == definition()
    assert run(aws.store.list_definitions()).items == (definition(),)
    assert {item["sk"]["S"] for item in aws.items()} == {"orders", "V#digest of 1", "current"}


def test_a_header_is_readable_as_it_stands(aws: Storage) -> None:
    wait = Wait(kind="hook", id="h", name="approve", since=START)
    run(aws.store.put_header(header(waiting=(wait,), tags=("a",))))
    (item,) = [item for item in aws.items() if item["sk"]["S"] == "A"]
    assert item["waiting"]["L"][0]["M"]["name"] == {"S": "approve"}
    assert item["tags"] == {"L": [{"S": "a"}]}
    assert item["created_at"] == {"N": str(START)}


# Requests


def test_each_call_is_one_request(aws: Storage) -> None:
    store = aws.store
    run(store.put_header(header("first")))  # from here on the workflow's name is known
    calls: list[tuple[Any, list[str]]] = [
        (store.put_header(header()), ["PutItem"]),
        (store.get_header("run"), ["GetItem"]),
        (store.append("run", commit(1)), ["PutItem"]),
        (store.put_hook(hook()), ["PutItem"]),
        (store.get_hook("run", "hook"), ["GetItem"]),
        (store.update_header(header(last_event=1, status=RunStatus.SUSPENDED)), ["UpdateItem"]),
        (store.request_cancel("run"), ["UpdateItem"]),
        (store.decide_hook("run", "hook", DECISION), ["UpdateItem"]),
        (store.put_checkpoint(checkpoint()), ["PutItem"]),
        (store.get_checkpoint("run", "step"), ["GetItem"]),
        (store.put_chunk(chunk(1)), ["PutItem"]),
        (store.get_chunks("run", "step"), ["Query"]),
        (store.expire_checkpoint("run", "step", START), ["UpdateItem"]),
        (store.put_step(step_row(1)), ["PutItem"]),
        (store.put_step(step_row(2)), ["PutItem"]),
        (store.get_step("run", "step"), ["GetItem"]),
        (store.load("run"), ["Query"]),
        (store.publish(definition()), ["GetItem", "PutItem", "PutItem", "PutItem"]),
        (store.publish(definition()), ["GetItem"]),
        (store.get_definition("orders"), ["GetItem"]),
        (store.list_definitions(), ["Query", "BatchGetItem"]),
        (store.list_hooks(run_id="run"), ["Query"]),
        (aws.blobs.put("h1", b"data"), ["PutObject"]),
        (aws.blobs.get("h1"), ["GetObject"]),
    ]
    for work, expected in calls:
        assert requests_of(aws, work) == expected


def test_the_first_run_of_a_workflow_in_a_process_makes_its_name_known(aws: Storage) -> None:
    assert requests_of(aws, aws.store.put_header(header("r1"))) == ["GetItem", "PutItem", "PutItem"]
    assert requests_of(aws, aws.store.put_header(header("r2"))) == ["PutItem"]


def test_whoever_loses_reads_once_more(aws: Storage) -> None:
    store = aws.store
    run(store.put_header(header()))
    run(store.append("run", commit(1)))
    run(store.put_hook(hook()))
    run(store.decide_hook("run", "hook", DECISION))
    assert requests_of(aws, store.put_header(header())) == ["PutItem", "GetItem"]
    assert requests_of(aws, store.append("run", commit(1))) == ["PutItem", "GetItem"]
    assert requests_of(aws, store.put_hook(hook())) == ["PutItem", "GetItem"]
    decide = store.decide_hook("run", "hook", DECISION)
    assert requests_of(aws, decide) == ["UpdateItem", "GetItem"]
    run(store.put_step(step_row()))
    assert requests_of(aws, store.put_step(step_row())) == ["PutItem", "GetItem"]
    assert requests_of(aws, store.update_header(header(last_event=-1))) == ["UpdateItem"]


def test_reads_are_strongly_consistent(aws: Storage) -> None:
    seen: list[bool] = []

    def note(params: dict[str, Any], **_: Any) -> None:
        seen.append(b'"ConsistentRead": true' in params["body"])

    for operation in ("GetItem", "Query"):
        aws.table.client.meta.events.register(f"before-call.dynamodb.{operation}", note)
    run(aws.store.load("run"))
    run(aws.store.get_header("run"))
    run(aws.store.get_hook("run", "hook"))
    run(aws.store.get_checkpoint("run", "step"))
    run(aws.store.get_chunks("run", "step"))
    run(aws.store.get_step("run", "step"))
    assert seen == [True] * 6


def test_a_page_of_runs_costs_a_query_per_shard_and_a_batch(aws: Storage) -> None:
    async def fill() -> None:
        for n in range(20):
            await aws.store.put_header(header(f"r{n:02}", created_at=START + n))

    run(fill())
    asked = requests_of(aws, aws.store.list_runs(workflow="orders", limit=10))
    assert asked.count("BatchGetItem") == 1
    assert asked.count("Query") <= 2 * keys.SHARDS


def many_runs(aws: Storage, count: int, **last: Any) -> None:
    """That many runs, each a millisecond older than the one before; `last` is about the oldest."""
    wanted = [header(f"r{n:05}", created_at=START - n) for n in range(count)]
    wanted[-1] = replace(wanted[-1], **last)
    run(aws.store.put_header(wanted[0]))  # from here on the name of the workflow is known
    puts = [{"PutRequest": {"Item": header_item(each)}} for each in wanted]
    for start in range(0, count, 25):
        aws.table.client.batch_write_item(RequestItems={"stepwell": puts[start : start + 25]})


@pytest.mark.parametrize("limit", [1, 50])
def test_a_page_of_few_among_many_runs_ends_after_a_thousand(aws: Storage, limit: int) -> None:
    many_runs(aws, 1_200, status=RunStatus.COMPLETED)

    async def page(cursor: str | None) -> Any:
        return await aws.store.list_runs(
            status=RunStatus.COMPLETED, workflow="orders", limit=limit, cursor=cursor
        )

    aws.requests.clear()
    first = run(page(None))
    assert first.items == ()
    assert first.cursor is not None
    # Each batch up to a hundred, each query 25 or more.
    assert aws.requests.count("BatchGetItem") <= 17
    assert aws.requests.count("Query") <= 50
    aws.requests.clear()
    second = run(page(first.cursor))
    assert [each.run_id for each in second.items] == ["r01199"]
    assert second.cursor is None
    assert aws.requests.count("Query") <= 20  # not those again that the first page has looked at


def test_runs_of_one_time_are_not_parted_where_a_page_ends(
    aws: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "RUNS_LOOKED_AT", 4)
    times = [9, 8, 8, 8, 8, 8, 8, 7, 7, 6, 6]

    async def scenario() -> list[list[str]]:
        for n, time in enumerate(times):
            await aws.store.put_header(header(f"r{n:02}", created_at=time))
        for n in (6, 10):
            await aws.store.update_header(
                header(f"r{n:02}", created_at=times[n], status=RunStatus.CANCELLED)
            )
        pages, cursor = [], None
        while True:
            page = await aws.store.list_runs(status=RunStatus.CANCELLED, limit=1, cursor=cursor)
            pages.append([each.run_id for each in page.items])
            cursor = page.cursor
            if cursor is None:
                return pages

    assert run(scenario()) == [["r06"], ["r10"]]


def test_a_history_of_three_megabytes_is_read_in_pages(aws: Storage) -> None:
    log = tuple(commit(n, fill=100 * 1024) for n in range(1, 31))

    async def fill() -> None:
        await aws.store.put_header(header())
        for one in log:
            assert await aws.store.append("run", one)
        await aws.store.put_hook(hook())

    run(fill())
    rows: list[Any] = []

    async def load() -> None:
        rows.append(await aws.store.load("run"))

    asked = requests_of(aws, load())
    assert len(asked) >= 3
    assert set(asked) == {"Query"}
    assert rows[0].header == header()
    assert rows[0].commits == log
    assert rows[0].hooks == (hook(),)


def test_a_log_that_was_written_while_it_was_read_has_no_hole(aws: Storage) -> None:
    log = tuple(commit(n) for n in range(1, 5))
    missed = [1]

    def miss_one(parsed: dict[str, Any], **_: Any) -> None:
        if missed:
            parsed["Items"].pop(missed.pop())

    async def scenario() -> None:
        for one in log:
            await aws.store.append("run", one)
        aws.table.client.meta.events.register("after-call.dynamodb.Query", miss_one)
        assert (await aws.store.load("run")).commits == log

    run(scenario())
    assert aws.requests.count("Query") == 2


def test_a_list_goes_on_where_a_batch_left_keys_unread(aws: Storage) -> None:
    async def fill() -> None:
        for n in range(6):
            await aws.store.put_header(header(f"r{n}"))

    run(fill())
    left = [3]

    def leave_some(parsed: dict[str, Any], **_: Any) -> None:
        if left and parsed.get("Responses"):
            items = parsed["Responses"]["stepwell"]
            unread = [items.pop() for _ in range(left.pop())]
            found = [{"pk": item["pk"], "sk": item["sk"]} for item in unread]
            parsed["UnprocessedKeys"] = {"stepwell": {"Keys": found}}

    aws.table.client.meta.events.register("after-call.dynamodb.BatchGetItem", leave_some)
    page = run(aws.store.list_runs())
    assert [row.run_id for row in page.items] == [f"r{n}" for n in range(6)]


# Sizes


def units(item: dict[str, Any]) -> int:
    """Write units of an item: one per KB begun."""
    return math.ceil(item_size(item) / 1024)


def reference_run(run_id: str) -> tuple[RunHeader, list[Commit], HookRow]:
    """The rows of five small steps around a hook, with ids and values as the engine makes them."""
    start = RunHeader(
        run_id=run_id,
        workflow="order_fulfilment",
        version="2026-11-30",
        status=RunStatus.PENDING,
        input='{"order_id":"order-12345","customer":"ann@example.com","total":"129.90"}',
        input_digest="d" * 64,
        seed="s" * 32,
        created_at=START,
        updated_at=START,
    )
    steps = [
        Commit(
            first=first,
            turn="t" * 32,
            number=first,
            events=(
                StepCompleted(
                    at=START + first,
                    step=f"charge_card:{first}",
                    name="charge_card",
                    digest="d" * 64,
                    attempt=1,
                    result='{"payment_id":"pay-98765","state":"captured"}',
                ),
            ),
        )
        for first in range(1, 6)
    ]
    waits = hook(
        run_id,
        "review:1>approve:1",
        name="approve",
        step="review:1",
        expires_at=START + DAY,
        schema='{"type":"object","properties":{"approved":{"type":"boolean"}}}',
    )
    return start, steps, waits


def test_items_of_the_reference_run_take_one_unit_each(aws: Storage) -> None:
    start, steps, waits = reference_run("0123456789abcdef" * 2)
    wait = Wait(kind="hook", id=waits.hook_id, name="approve", since=START, until=START + DAY)

    async def scenario(store: Store) -> None:
        await store.put_header(start)
        for one in steps:
            assert await store.append(start.run_id, one)
        await store.put_hook(waits)
        waiting = replace(start, status=RunStatus.SUSPENDED, waiting=(wait,), last_event=6)
        assert await store.update_header(waiting)
        assert all(units(item) == 1 for item in aws.items())
        decided = await store.decide_hook(start.run_id, waits.hook_id, DECISION)
        assert decided is not None
        ended = replace(start, status=RunStatus.COMPLETED, result='{"ok":true}', last_event=9)
        assert await store.update_header(ended)

    run(scenario(aws.store))
    items = aws.items()
    assert all(units(item) == 1 for item in items)
    loaded = [item for item in items if item["pk"]["S"].startswith("R#")]
    # One strongly consistent unit per 4 KB of all that one query brings.
    assert math.ceil(sum(map(item_size, loaded)) / 4096) == 1


def test_the_size_of_an_item_is_counted_as_dynamodb_does() -> None:
    assert item_size({"ab": {"S": "é"}}) == 4
    assert item_size({"a": {"BOOL": True}}) == 2
    assert item_size({"a": {"N": "1700000000000"}}) == 3
    assert item_size({"a": {"N": "-12345"}}) == 1 + 5
    assert item_size({"a": {"L": [{"S": "xy"}]}}) == 1 + 3 + 1 + 2
    assert item_size({"a": {"M": {"k": {"S": "xy"}}}}) == 1 + 3 + 1 + 1 + 2


# Lost replies


async def _append(store: Store) -> object:
    return await store.append("run", commit(1, turn="own", number=4))


async def _put_header(store: Store) -> object:
    return await store.put_header(header("new"))


async def _put_hook(store: Store) -> object:
    return await store.put_hook(hook(hook_id="new"))


async def _put_chunk(store: Store) -> object:
    return await store.put_chunk(chunk(1))


async def _put_step(store: Store) -> object:
    return await store.put_step(step_row())


async def _put_inbox(store: Store) -> object:
    return await store.put_inbox(entry())


async def _replace_step(store: Store) -> object:
    return await store.put_step(step_row(2, step="claimed", claim="m1"))


async def _publish(store: Store) -> object:
    await store.publish(definition())
    return await store.get_definition("orders")


async def _expire_checkpoint(store: Store) -> object:
    await store.expire_checkpoint("run", "saved", START)
    return (await store.get_checkpoint("run", "saved")) is not None


async def _put_checkpoint(store: Store) -> object:
    return await store.put_checkpoint(checkpoint())


async def _decide_hook(store: Store) -> object:
    return await store.decide_hook("run", "hook", DECISION)


async def _update_header(store: Store) -> object:
    return await store.update_header(header(last_event=2, status=RunStatus.SUSPENDED))


async def _request_cancel(store: Store) -> object:
    return await store.request_cancel("run")


DECIDED = hook(
    status=DECISION.status,
    decision_id=DECISION.decision_id,
    decided_at=DECISION.decided_at,
    payload=DECISION.payload,
)
WRITES: list[tuple[Callable[[Store], Any], str, object]] = [
    (_append, "PutItem", True),
    (_put_header, "PutItem", header("new")),
    (_put_hook, "PutItem", hook(hook_id="new")),
    (_put_chunk, "PutItem", True),
    (_put_checkpoint, "PutItem", True),
    (_put_step, "PutItem", step_row()),
    (_put_inbox, "PutItem", entry()),
    (_replace_step, "PutItem", step_row(2, step="claimed", claim="m1")),
    (_expire_checkpoint, "UpdateItem", True),
    (_decide_hook, "UpdateItem", DECIDED),
    (_update_header, "UpdateItem", True),
    (_request_cancel, "UpdateItem", True),
]


@pytest.mark.parametrize("kind", ["lost", "timeout"])
@pytest.mark.parametrize(("write", "operation", "expected"), WRITES)
def test_a_write_whose_reply_was_lost_knows_itself(
    aws: Storage, write: Any, operation: str, expected: object, kind: str
) -> None:
    run(aws.store.put_header(header()))
    run(aws.store.put_hook(hook()))
    run(aws.store.put_step(step_row(step="claimed")))
    run(aws.store.put_checkpoint(checkpoint(step="saved")))
    left = aws.fault(aws.table.client, operation, kind)
    aws.requests.clear()
    assert run(write(aws.store)) == expected
    assert left == []
    assert aws.requests.count(operation) == 2


def test_a_definition_whose_replies_were_lost_is_published(aws: Storage) -> None:
    left = aws.fault(aws.table.client, "PutItem", *["lost"] * 3)
    assert run(_publish(aws.store)) == definition()
    assert left == []


@pytest.mark.parametrize(("write", "operation", "expected"), WRITES)
def test_a_write_whose_replies_were_all_lost_is_recognised_the_next_time(
    aws: Storage, write: Any, operation: str, expected: object
) -> None:
    run(aws.store.put_header(header()))
    run(aws.store.put_hook(hook()))
    run(aws.store.put_step(step_row(step="claimed")))
    run(aws.store.put_checkpoint(checkpoint(step="saved")))
    aws.fault(aws.table.client, operation, *["lost"] * ATTEMPTS)
    with pytest.raises(TransientError):
        run(write(aws.store))
    assert run(write(aws.store)) == expected


# Failures


@pytest.mark.parametrize("kind", ["throttle", "500", "reset", "timeout"])
def test_what_passes_is_tried_again(aws: Storage, kind: str) -> None:
    left = aws.fault(aws.table.client, "GetItem", kind)
    assert run(aws.store.get_header("run")) is None
    assert left == []


@pytest.mark.parametrize("kind", ["throttle", "500", "reset", "timeout"])
@pytest.mark.parametrize("operation", ["GetItem", "PutItem", "Query", "UpdateItem"])
def test_what_does_not_pass_is_a_transient_error_after_bounded_attempts(
    aws: Storage, operation: str, kind: str
) -> None:
    calls: dict[str, Any] = {
        "GetItem": aws.store.get_header,
        "PutItem": lambda run_id: aws.store.append(run_id, commit(1)),
        "Query": aws.store.load,
        "UpdateItem": aws.store.request_cancel,
    }
    left = aws.fault(aws.table.client, operation, *[kind] * 50)
    with pytest.raises(TransientError):
        run(calls[operation]("run"))
    assert 50 - len(left) == ATTEMPTS


def test_a_missing_permission_is_no_transient_error(aws: Storage) -> None:
    aws.fault(aws.table.client, "GetItem", "denied")
    with pytest.raises(ClientError, match="AccessDenied"):
        run(aws.store.get_header("run"))
    assert aws.requests.count("GetItem") == 1


def test_keys_that_stay_unread_are_a_transient_error(
    aws: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepwell.adapters.aws.table.time", SimpleNamespace(sleep=lambda _: None))
    run(aws.store.put_header(header()))

    def leave_all(parsed: dict[str, Any], **_: Any) -> None:
        items = parsed["Responses"].pop("stepwell")
        found = [{"pk": item["pk"], "sk": item["sk"]} for item in items]
        parsed["UnprocessedKeys"] = {"stepwell": {"Keys": found}}

    aws.table.client.meta.events.register("after-call.dynamodb.BatchGetItem", leave_all)
    with pytest.raises(TransientError, match="unread"):
        run(aws.store.list_runs())
    assert aws.requests.count("BatchGetItem") == ATTEMPTS


def test_a_call_does_not_hold_the_loop_up(aws: Storage) -> None:
    release = threading.Event()

    def wait(**_: Any) -> None:
        assert release.wait(10)

    aws.table.client.meta.events.register("before-send.dynamodb.GetItem", wait)

    async def scenario() -> None:
        call = asyncio.create_task(aws.store.get_header("run"))
        await asyncio.sleep(0.05)  # what else the loop has to do is done meanwhile
        assert not call.done()
        release.set()
        assert await call is None

    run(scenario())


# Blobs


@pytest.mark.parametrize("operation", ["PutObject", "GetObject"])
@pytest.mark.parametrize("kind", ["slow down", "500", "reset", "timeout"])
def test_blobs_report_what_may_pass(aws: Storage, operation: str, kind: str) -> None:
    run(aws.blobs.put("h1", b"data"))
    left = aws.fault(aws.clients.s3, operation, *[kind] * 50)
    with pytest.raises(TransientError):
        run(aws.blobs.put("h2", b"data") if operation == "PutObject" else aws.blobs.get("h1"))
    assert 50 - len(left) == ATTEMPTS


def test_a_blob_whose_reply_was_lost_is_put(aws: Storage) -> None:
    aws.fault(aws.clients.s3, "PutObject", "lost")
    run(aws.blobs.put("h1", b"data"))
    assert run(aws.blobs.get("h1")) == b"data"


def test_what_stands_under_a_hash_is_never_replaced(aws: Storage) -> None:
    run(aws.blobs.put("h1", b"data"))
    run(aws.blobs.put("h1", b"other"))
    assert run(aws.blobs.get("h1")) == b"data"


def test_blobs_are_objects_under_the_prefix(aws: Storage) -> None:
    run(aws.blobs.put("h1", b"data"))
    (found,) = aws.clients.s3.list_objects_v2(Bucket=BUCKET)["Contents"]
    assert found["Key"] == "values/h1"
    assert aws.table.client.meta.region_name == REGION
