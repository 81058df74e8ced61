"""Payloads by the schemas of the steps that take them."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, BeforeValidator, Field
from typing_extensions import TypedDict

from stepwell import (
    RetryPolicy,
    acknowledge_inbox_signal,
    get_current_signal,
    poll_inbox,
    set_result,
    stream_step,
    stream_workflow,
)
from stepwell.core.messages import SignalSent
from stepwell.core.signals import SentSignal, SignalDraft, StreamKey, stream_key
from stepwell.errors import SignalRejected
from stepwell.testing import Environment
from tests.integration.streams.given import begin, post, send, standing, subscription

Seen = list[Any]


class Order(BaseModel):
    item: str
    pieces: int = Field(default=1, gt=0)


@dataclass
class Slip:
    item: str
    pieces: int = 1


class Note(TypedDict):
    item: str
    pieces: int


@pytest.fixture
def stream(stepwell_env: Environment) -> Any:
    """A stream without a step so far."""

    @stream_workflow
    async def shop() -> None: ...

    return shop


def clerk(stream: Any, schema: Any, seen: Seen, name: str = "clerk", **options: Any) -> None:
    """A step that takes orders of a schema."""

    @stream_step(stream=stream, signals={"order": schema, "free": None}, name=name, **options)
    async def take() -> None:
        signal = await get_current_signal()
        if signal is not None:
            seen.append(signal.payload)


def by_queue(env: Environment, payload: str, number: int = 1) -> None:
    """Send a signal past all checks, as a queue would bring it."""
    sent = SentSignal(
        signal_id=f"sig_{number}", type="order", payload=payload, published_at=env.clock.now()
    )
    message = SignalSent.of(StreamKey("shop", "default"), sent)
    env.wait_for(env._local.ports.signals.send([message]))
    env.run_until_idle()


def test_a_model_makes_a_validated_dict(stepwell_env: Environment, stream: Any) -> None:
    seen: Seen = []
    clerk(stream, Order, seen)
    begin(stepwell_env, stream)
    send(stepwell_env, "shop", "order", {"item": "tea"})
    send(stepwell_env, "shop", "order", Order(item="cup", pieces=2))
    assert seen == [{"item": "tea", "pieces": 1}, {"item": "cup", "pieces": 2}]
    assert seen[0]["item"] == "tea"


@pytest.mark.parametrize("schema", [Note, dict[str, Any]])
def test_other_types_of_dicts_can_be_schemas(
    stepwell_env: Environment, stream: Any, schema: Any
) -> None:
    seen: Seen = []
    clerk(stream, schema, seen)
    begin(stepwell_env, stream)
    send(stepwell_env, "shop", "order", {"item": "tea", "pieces": 1})
    assert seen == [{"item": "tea", "pieces": 1}]


def test_a_dataclass_is_a_dict_as_well(stepwell_env: Environment, stream: Any) -> None:
    seen: Seen = []
    clerk(stream, Slip, seen)
    begin(stepwell_env, stream)
    send(stepwell_env, "shop", "order", {"item": "tea"})
    assert seen == [{"item": "tea", "pieces": 1}]


def test_types_without_a_schema_take_any_json(stepwell_env: Environment, stream: Any) -> None:
    seen: Seen = []
    clerk(stream, Order, seen)
    begin(stepwell_env, stream)
    for payload in ({"a": [1, None]}, [1], "text", 7):
        send(stepwell_env, "shop", "free", payload)
    assert seen == [{"a": [1, None]}, [1], "text", 7]


def test_emit_refuses_what_does_not_fit_and_says_where(
    stepwell_env: Environment, stream: Any
) -> None:
    clerk(stream, Order, [])
    begin(stepwell_env, stream)
    with pytest.raises(SignalRejected) as refused:
        post(stepwell_env, "shop", "order", {"item": "tea", "pieces": 0})
    assert (refused.value.signal_type, refused.value.step) == ("order", "clerk")
    assert "pieces" in str(refused.value)
    assert standing(stepwell_env, "shop").last == 0


def test_what_does_not_fit_is_parked_at_once_and_the_step_is_not_called(
    stepwell_env: Environment, stream: Any
) -> None:
    seen: Seen = []
    other: Seen = []
    clerk(stream, Order, seen, on_failure="block")
    clerk(stream, None, other, "archive")
    begin(stepwell_env, stream)
    by_queue(stepwell_env, '{"pieces":2}')
    by_queue(stepwell_env, '{"item":"tea"}', 2)
    assert seen == [{"item": "tea", "pieces": 1}], "nor do later ones wait for it"
    assert other == [{"pieces": 2}, {"item": "tea"}]
    [left] = stepwell_env.wait_for(stepwell_env.client.parked_signals("shop", "clerk"))
    assert (left.sequence, left.attempts) == (1, 1)
    assert "item" in left.error.message
    [kept, _] = stepwell_env.wait_for(stepwell_env.client.signals("shop"))
    assert kept.payload == {"pieces": 2}


def test_what_was_parked_is_taken_by_a_schema_that_it_fits(
    stepwell_env: Environment, stream: Any
) -> None:
    seen: Seen = []
    schema = {"now": Order}

    class Wider(BaseModel):
        item: str = "anything"
        pieces: int = 1

    def loose(value: Any) -> Any:
        return schema["now"].model_validate(value)

    clerk(stream, Annotated[dict[str, Any], BeforeValidator(lambda v: loose(v).model_dump())], seen)
    begin(stepwell_env, stream)
    by_queue(stepwell_env, '{"pieces":2}')
    assert seen == []
    schema["now"] = Wider  # type: ignore[assignment]
    stepwell_env.wait_for(stepwell_env.client.redrive_signal("shop", "clerk", 1))
    stepwell_env.run_until_idle()
    assert seen == [{"item": "anything", "pieces": 2}]


def test_a_result_that_cannot_be_carried_fails_the_call(
    stepwell_env: Environment, stream: Any
) -> None:
    called: Seen = []

    @stream_step(
        stream=stream, signals=["free"], on_failure="block", retry=RetryPolicy(max_attempts=1)
    )
    async def clumsy() -> None:
        signal = await get_current_signal()
        if signal is not None:
            called.append(signal.sequence)
            await set_result(object())

    begin(stepwell_env, stream)
    for _ in range(2):
        send(stepwell_env, "shop", "free")
    found = subscription(stepwell_env, "shop", "clumsy")
    assert (found.parked, found.blocked_by, called) == (1, 1, [1])


def test_a_look_at_waiting_signals_reads_them_by_their_model_and_leaves_out_what_does_not_fit(
    stepwell_env: Environment,
) -> None:
    seen: list[Any] = []

    class Price(BaseModel):
        amount: Decimal

    @stream_workflow
    async def prices() -> None: ...

    @stream_step(stream=prices, signals={"price": Price})
    async def watches() -> None:
        if await get_current_signal() is None:
            return
        for each in await poll_inbox():
            seen.append(each.payload["amount"])
            await acknowledge_inbox_signal(each.signal_id)

    run = begin(stepwell_env, prices)
    key = stream_key("prices", None)
    for payload in ('{"amount": "1"}', '{"amount": "much"}', '{"amount": "2.50"}'):
        draft = SignalDraft(key=key, type="price", payload=payload)
        stepwell_env.wait_for(stepwell_env.client.send_signal(draft))
    stepwell_env.run_until_idle()
    assert seen == [Decimal("2.50")]
    shown = subscription(stepwell_env, "prices", "watches")
    assert (shown.handled, shown.parked, shown.lag) == (2, 1, 0)
    assert not stepwell_env.get(run).status.terminal
