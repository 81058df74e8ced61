"""Values on their way through a run: back as their annotation says, on first pass and on replay."""

import datetime as dt
import enum
import json
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel
from typing_extensions import TypedDict

from stepwell import (
    RetryPolicy,
    StepFailed,
    current,
    hook,
    load_step_checkpoint,
    save_step_checkpoint,
    sleep,
    step,
    step_hook,
    workflow,
)
from stepwell.core.payload import Sizes, codec
from stepwell.core.records import is_reference, reference_key
from stepwell.engine.ports import BlobMissing
from stepwell.errors import PayloadError, PayloadRejected, PayloadTooLarge, RunFailed
from stepwell.testing import Environment
from tests.integration.histories import found


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Order(BaseModel):
    id: uuid.UUID
    total: Decimal
    placed: dt.datetime
    lines: dict[int, set[str]]


@dataclass(frozen=True)
class Point:
    x: int
    y: tuple[float, ...]


class Options(TypedDict):
    level: Level
    wait: dt.timedelta


class Pair(NamedTuple):
    left: int
    right: bytes


ORDER = Order(
    id=uuid.UUID(int=7),
    total=Decimal("10.10"),
    placed=dt.datetime(2030, 1, 2, 3, 4, 5, 678901, tzinfo=dt.UTC),
    lines={1: {"a", "b"}, 2: set()},
)
ZONED = dt.datetime(2030, 1, 2, 3, 4, tzinfo=dt.timezone(dt.timedelta(hours=5, minutes=30)))

VALUES: list[Any] = [
    pytest.param(Order, ORDER, id="model"),
    pytest.param(list[Order], [ORDER, ORDER], id="models"),
    pytest.param(Point, Point(1, (2.5, 3.0)), id="dataclass"),
    pytest.param(Options, {"level": Level.HIGH, "wait": dt.timedelta(hours=1)}, id="typed dict"),
    pytest.param(Pair, Pair(1, b"\x00\xff"), id="named tuple"),
    pytest.param(Colour, Colour.RED, id="enum"),
    pytest.param(Level, Level.HIGH, id="int enum"),
    pytest.param(dt.datetime, ZONED, id="datetime"),
    pytest.param(dt.timedelta, dt.timedelta(days=2, microseconds=3), id="timedelta"),
    pytest.param(Decimal, Decimal("1.10"), id="decimal"),
    pytest.param(uuid.UUID, uuid.UUID(int=5), id="uuid"),
    pytest.param(bytes, b"\x00\xfe\xff", id="bytes"),
    pytest.param(set[int], {1, 2, 3}, id="set"),
    pytest.param(frozenset[str], frozenset({"a"}), id="frozenset"),
    pytest.param(tuple[int, str], (1, "a"), id="tuple"),
    pytest.param(tuple[int, ...], (1, 2), id="long tuple"),
    pytest.param(dict[int, str], {1: "a", -2: "b"}, id="int keys"),
    pytest.param(dict[Colour, Decimal], {Colour.RED: Decimal("2.50")}, id="enum keys"),
    pytest.param(Order | None, None, id="none"),
    pytest.param(int, 2**70, id="large int"),
    pytest.param(str, 'ünï\u2028"\x00', id="text"),
]
#: Not in answers: they come from outside as JSON, which has no such number.
INFINITE: list[Any] = [pytest.param(float, float("inf"), id="infinity")]
PLAIN: list[Any] = [None, True, 1, -0.5, "text", [1, [2]], {"a": {"b": None}}]


def same(left: Any, right: Any) -> bool:
    """Equal, and of the same types all the way down."""
    if type(left) is not type(right) or left != right:
        return False
    if isinstance(left, dict):
        return all(same(a, b) and same(left[a], right[b]) for a, b in zip(left, right, strict=True))
    if isinstance(left, list | tuple):
        return all(same(a, b) for a, b in zip(left, right, strict=True))
    if isinstance(left, dt.datetime):
        return bool(left.utcoffset() == right.utcoffset())
    if isinstance(left, Decimal):
        return str(left) == str(right)
    return True


@pytest.mark.parametrize(("kind", "value"), VALUES + INFINITE)
def test_arguments_and_results(env: Environment, kind: Any, value: Any) -> None:
    seen: list[Any] = []

    @step
    async def echo(given: kind) -> kind:
        seen.append(given)
        return given

    @workflow
    async def flow(given: kind) -> kind:
        seen.append(given)
        result = await echo(given)
        seen.append(result)
        await sleep("1h")
        return result

    run = env.start(flow, value)
    seen.append(env.run_to_end(run))
    assert len(seen) == 6
    assert all(same(each, value) for each in seen)


@pytest.mark.parametrize(("kind", "value"), VALUES)
def test_answers(env: Environment, kind: Any, value: Any) -> None:
    seen: list[Any] = []

    @step
    async def ask() -> None:
        seen.append(await step_hook("inner", payload_schema=kind))
        seen.append(await step_hook("again", payload_schema=kind))

    @workflow
    async def flow() -> None:
        seen.append(await hook("outer", payload_schema=kind))
        await ask()

    run = env.start(flow)
    env.run_until_idle()
    answer = _as_json(kind, value)
    for _ in range(3):
        [waiting] = env.hooks()
        env.resume_hook(waiting.token, answer)
    env.result(run)
    assert all(same(each, value) for each in seen)
    assert len(seen) >= 6


def _as_json(kind: Any, value: Any) -> Any:
    """What a caller without the types would send."""
    return json.loads(codec(kind, "test").encode(value))


@pytest.mark.parametrize(("kind", "value"), VALUES + INFINITE)
def test_checkpoints(env: Environment, kind: Any, value: Any) -> None:
    seen: list[Any] = []

    @step(retry=RetryPolicy(initial="1m", jitter="none"))
    async def work() -> None:
        if current.attempt == 1:
            await save_step_checkpoint(value, kind)
        seen.append(await load_step_checkpoint(kind))
        if current.attempt == 1:
            raise ConnectionError

    @workflow
    async def flow() -> None:
        await work()

    env.run_to_end(env.start(flow))
    assert len(seen) == 2
    assert all(same(each, value) for each in seen)


@pytest.mark.parametrize("value", PLAIN, ids=repr)
def test_plain_values_need_no_annotation(env: Environment, value: Any) -> None:
    seen: list[Any] = []

    @step
    async def echo(given):  # type: ignore[no-untyped-def]
        await save_step_checkpoint(given)
        return await load_step_checkpoint()

    @workflow
    async def flow(given):  # type: ignore[no-untyped-def]
        seen.append(await echo(given))
        seen.append(await hook("q"))
        return seen[-1]

    run = env.start(flow, value)
    env.run_until_idle()
    [waiting] = env.hooks()
    env.resume_hook(waiting.token, value)
    assert same(env.result(run), value)
    assert len(seen) == 3
    assert all(same(each, value) for each in seen)


def test_a_result_is_what_a_replay_will_see_already_on_the_first_pass(env: Environment) -> None:
    seen: list[Any] = []

    class Loose(BaseModel):
        amount: int

    @step
    async def coerced() -> Loose:
        return {"amount": "5"}  # type: ignore[return-value]

    @workflow
    async def flow() -> None:
        seen.append(await coerced())
        await sleep("1h")

    env.run_to_end(env.start(flow))
    assert seen == [Loose(amount=5)] * 2


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (object(), "$"),
        ({"a": [1, {"b": object()}]}, "$.a[1].b"),
        ([{1, 2}], "$[0]"),
        ({"when": ZONED}, "$.when"),
        ({1: "a"}, "$"),
        ("\ud800", "$"),
    ],
)
def test_a_result_that_cannot_be_carried_fails_at_once_and_says_where(
    env: Environment, value: Any, path: str
) -> None:
    tries: list[int] = []

    @step
    async def make():  # type: ignore[no-untyped-def]
        tries.append(1)
        return value

    @workflow
    async def flow() -> list[Any]:
        try:
            await make()
        except StepFailed as failed:
            return [failed.type, failed.message]
        return []

    type_, message = env.run(flow)
    assert type_ == "stepwell.errors.PayloadError"
    assert message.startswith(f"step 'make': value at {path}")
    assert tries == [1]


def test_a_result_of_another_type_fails_at_once(env: Environment) -> None:
    @step
    async def make() -> dict[str, int]:
        return {"a": "many"}  # type: ignore[dict-item]

    @workflow
    async def flow() -> str:
        try:
            await make()
        except StepFailed as failed:
            return f"{failed.attempts} {failed.message}"
        return ""

    assert env.run(flow).startswith("1 step 'make': value at $.a")


def test_a_workflow_that_returns_what_cannot_be_carried_fails(env: Environment) -> None:
    @workflow
    async def flow():  # type: ignore[no-untyped-def]
        return {"a": object()}

    run = env.start(flow)
    env.run_until_idle()
    with pytest.raises(RunFailed, match=r"workflow 'flow': value at \$\.a"):
        env.result(run)


def test_a_start_with_what_cannot_be_carried_starts_nothing(env: Environment) -> None:
    @workflow
    async def flow(number: int) -> None: ...

    with pytest.raises(PayloadError, match=r"\$\.number"):
        env.start(flow, "many")
    with pytest.raises(TypeError):
        env.start(flow)
    assert env.wait_for(env.client.list_runs()).items == ()


def test_above_the_hard_limit_a_value_is_refused_at_once() -> None:
    tries: list[str] = []

    @step
    async def make(kind: str) -> str:
        tries.append(kind)
        if kind == "checkpoint":
            await save_step_checkpoint("x" * 2_000)
        return "x" * (2_000 if kind == "result" else 1)

    @workflow
    async def flow(kind: str) -> list[Any]:
        try:
            await make(kind)
        except StepFailed as failed:
            return [failed.type, failed.attempts, failed.message]
        return []

    @workflow
    async def large() -> str:
        return "x" * 2_000

    @workflow
    async def asks() -> Any:
        return len(await hook("q"))

    with Environment(sizes=Sizes(inline_limit=100, hard_limit=1_000)) as env:
        for kind in ("result", "checkpoint"):
            type_, attempts, message = env.run(flow, kind)
            assert (type_, attempts) == ("stepwell.errors.PayloadTooLarge", 1)
            assert "step 'make'" in message
            assert "2,002 bytes, the limit is 1,000" in message
        run = env.start(large)
        env.run_until_idle()
        with pytest.raises(RunFailed, match=r"workflow 'large'.*2,002 bytes"):
            env.result(run)
        with pytest.raises(PayloadTooLarge):
            env.start(flow, "x" * 2_000)
        run = env.start(asks)
        env.run_until_idle()
        [waiting] = env.hooks()
        with pytest.raises(PayloadTooLarge):
            env.resume_hook(waiting.token, "x" * 2_000)
        env.resume_hook(waiting.token, "x" * 500)
        assert env.result(run) == 500
    assert tries == ["result", "checkpoint"]


def test_large_values_are_kept_apart_and_read_back_whole(
    process: Callable[..., AbstractContextManager[Environment]],
) -> None:
    large = ["ä" * 100] * 100

    @step
    async def double(value: list[str]) -> list[str]:
        if await load_step_checkpoint() is None:
            await save_step_checkpoint(value)
        answer: list[str] = await step_hook("q")
        kept: list[str] = await load_step_checkpoint()
        return kept + answer

    @workflow
    async def flow(value: list[str]) -> list[str]:
        result = await double(value)
        result += await hook("more")
        await sleep("1h")
        return result

    with process() as env:
        run = env.start(flow, large)
        env.run_until_idle()
    with process() as env:
        for _ in range(2):
            [waiting] = env.hooks()
            env.resume_hook(waiting.token, large)
        env.advance("1h")
        assert env.wait_for(env.client.result(run.id, timeout=0)) == large * 3
        history = env.wait_for(env.client.history(run.id))
        texts = [
            getattr(each.event, name)
            for each in history
            for name in ("input", "result", "payload")
            if getattr(each.event, name, None)
        ]
        assert len(texts) == 5
        assert not any(is_reference(text) for text in texts)
        rows = env.wait_for(env._ports.store.load(run.id))
        assert rows.header is not None
        assert is_reference(rows.header.input)
        events = [event for commit in rows.commits for event in commit.events]
        completed = [event for event in events if event.type == "StepCompleted"]
        received = [event for event in events if event.type == "HookReceived"]
        references = [completed[0].result, *(each.payload for each in received)]
        assert all(is_reference(each) for each in references)
        for each in references:
            assert env.wait_for(env._ports.blobs.get(reference_key(each)))


def test_just_below_the_limit_a_value_stays_inline(env: Environment) -> None:
    @step
    async def make(size: int) -> str:
        return "x" * (size - 2)

    @workflow
    async def flow() -> None:
        await make(8_192)
        await make(8_193)

    run = env.start(flow)
    env.run_until_idle()
    rows = env.wait_for(env._ports.store.load(run.id))
    results = [
        event.result
        for commit in rows.commits
        for event in commit.events
        if event.type == "StepCompleted"
    ]
    assert [is_reference(result) for result in results] == [False, True]
    assert [len(event.result) for event in found(env, run, "StepCompleted")] == [8_192, 8_193]


def test_a_missing_blob_is_a_clear_error() -> None:
    @workflow
    async def flow() -> str:
        return "x" * 20_000

    with Environment() as env:
        run = env.start(flow)
        env.run_until_idle()
        env._local.database.change("DELETE FROM blobs")
        client = env.client
        for look in (client.result(run.id), client.get(run.id), client.history(run.id)):
            with pytest.raises(BlobMissing, match="missing"):
                env.wait_for(look)


@pytest.mark.parametrize(
    ("kind", "bad", "good", "value"),
    [
        (uuid.UUID, "nope", str(uuid.UUID(int=1)), uuid.UUID(int=1)),
        (dt.datetime, "tomorrow", "2030-01-01T00:00:00", dt.datetime(2030, 1, 1)),  # noqa: DTZ001
        (dt.timedelta, "a while", "PT1.5S", dt.timedelta(seconds=1.5)),
        (dt.time, "noon", "12:00:00", dt.time(12)),
        (dt.date, "monday", "2030-01-01", dt.date(2030, 1, 1)),
        (Colour, "blue", "red", Colour.RED),
        (tuple[int, str], [1], [1, "a"], (1, "a")),
    ],
)
def test_an_answer_that_would_not_be_read_is_refused_while_it_can_be_corrected(
    env: Environment, kind: Any, bad: Any, good: Any, value: Any
) -> None:
    @workflow
    async def flow() -> kind:
        answer: kind = await hook("q", payload_schema=kind)
        return answer

    run = env.start(flow)
    env.run_until_idle()
    [waiting] = env.hooks()
    with pytest.raises(PayloadRejected):
        env.resume_hook(waiting.token, bad)
    env.resume_hook(waiting.token, good)
    assert env.result(run) == value
