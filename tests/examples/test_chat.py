"""The chat: messages in their order, each answered once, at a price that does not grow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from examples.chat.actor import MEMORY, STREAM, TOGETHER, chat
from examples.outside import Outside, use
from stepwell.client import NewSignal, RunHandle
from stepwell.core.signals import StreamKey, subscription_run_id
from stepwell.engine.subscriptions import SNAPSHOT_EVERY
from stepwell.errors import SignalRejected
from stepwell.streams.signals import Signal
from stepwell.testing import Environment


def begun(env: Environment) -> RunHandle[Any]:
    """Ada's conversation."""
    run = env.wait_for(env.client.with_options(stream_run_id="ada").start(chat, "Good morning"))
    env.run_until_idle()
    return run


def say(env: Environment, *texts: str) -> None:
    """Say all of this at once."""
    news = [NewSignal(signal_type="user.said", payload={"text": text}) for text in texts]
    env.wait_for(env.client.emit_all(STREAM, news, stream_run_id="ada"))
    env.run_until_idle()


def leave(env: Environment) -> None:
    """Say goodbye."""
    env.wait_for(env.client.emit(STREAM, "user.left", stream_run_id="ada"))
    env.run_until_idle()


def signals(env: Environment, kind: str) -> Sequence[Signal]:
    """What was said, in its order."""
    found = env.client.signals(STREAM, stream_run_id="ada", types=[kind], limit=10_000)
    return env.wait_for(found)


def test_each_message_is_answered_in_its_turn(stepwell_env: Environment, world: Outside) -> None:
    run = begun(stepwell_env)
    for text in ("Good day", "Good day", "Who are you?"):
        say(stepwell_env, text)
    answers = [each.payload["text"] for each in signals(stepwell_env, "agent.said")]
    assert answers == [
        "Good morning",
        "You said 2 words.",
        "You have said that.",
        "I remember 2 things; I do not know.",
    ]
    leave(stepwell_env)
    result = stepwell_env.result(run)
    assert result.get_result("agent") == {"messages": 3, "last": ["Who are you?"]}
    assert result.get_result("transcript") == {"said": 4, "last": answers[-1]}


def test_messages_that_come_in_a_burst_are_answered_together(
    stepwell_env: Environment, world: Outside
) -> None:
    begun(stepwell_env)
    say(stepwell_env, "One", "Two", "Three")
    assert list(world.effects("model asked").values()) == ["One | Two | Three"]
    assert [each.payload["to"] for each in signals(stepwell_env, "agent.said")] == [[], [2, 3, 4]]


def test_a_model_that_does_not_answer_is_asked_again_with_the_same_words(
    stepwell_env: Environment, world: Outside
) -> None:
    begun(stepwell_env)
    world.fail("model asked", times=2)
    say(stepwell_env, "One")
    say(stepwell_env, "Two")
    stepwell_env.advance("1m")
    assert list(world.effects("model asked").values()) == ["One", "Two"]
    assert world.requests("model asked") == 4


def test_messages_before_the_conversation_wait_for_it(
    stepwell_env: Environment, world: Outside
) -> None:
    say(stepwell_env, "Is anybody there?")
    begun(stepwell_env)
    assert [each.sequence for each in signals(stepwell_env, "agent.said")] == [2, 3]
    assert world.requests("model asked") == 1


@pytest.mark.parametrize("text", ["", "x" * 4_001])
def test_a_message_that_nobody_would_read_is_refused(
    stepwell_env: Environment, world: Outside, text: str
) -> None:
    begun(stepwell_env)
    with pytest.raises(SignalRejected):
        say(stepwell_env, text)


class Cost(BaseModel):
    """What a conversation has cost: calls of ports, and what the next turn would read."""

    calls: int
    events: int
    checkpoint: int


def talked(world: Outside, messages: int) -> Cost:
    """A conversation of so many messages, most of which come in bursts of uneven size."""
    texts = [f"message {number}" for number in range(messages)]
    with Environment() as env:
        begun(env)
        left, size = list(texts), 1
        while left:
            say(env, *left[:size])
            left, size = left[size:], size * 3 % 41
        asked = list(world.effects("model asked").values())
        assert [text for each in asked for text in each.split(" | ")] == texts
        assert world.requests("model asked") == len(asked)
        said = [each.sequence for each in signals(env, "user.said")]
        to = [number for each in signals(env, "agent.said") for number in each.payload["to"]]
        assert to == said
        run_id = subscription_run_id(StreamKey(STREAM, "ada"), "agent")
        events = env.facts(run_id).events
        [*_, checkpoint] = [
            each.checkpoint for each in events if getattr(each, "checkpoint", None) is not None
        ]
        assert max(len(each.split(" | ")) for each in asked) == TOGETHER
        return Cost(calls=len(env.port_calls), events=len(events), checkpoint=len(checkpoint))


def test_a_thousand_messages_cost_a_thousand_times_one(tmp_path: Path) -> None:
    costs = []
    for messages in (200, 1_000):
        world = Outside(tmp_path / f"{messages}.sqlite3")
        use(world)
        costs.append(talked(world, messages))
        world.close()
    few, many = costs
    assert many.calls / 1_000 < few.calls / 200 * 1.1
    assert many.events < 2 * SNAPSHOT_EVERY
    assert many.checkpoint < MEMORY * 30 + 100
