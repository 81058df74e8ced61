"""The examples of streams on the stack: signals over HTTP and by the inbox, each handled once."""

from __future__ import annotations

from typing import Any

import pytest

from examples.outside import Outside
from stepwell.core.signals import StreamKey, subscription_run_id
from tests.e2e.emulator import until
from tests.e2e.stack import Stack
from tests.e2e.test_examples import check_over, had, time_passing
from tests.examples.given import EXAMPLES, PLACED, Sent

DAY = 24


def start(stack: Stack, stream: str, run: str, **input: Any) -> str:
    """Start a stream run; its run id."""
    reply = stack.http(
        "POST",
        f"/v1/workflows/{stream}/runs",
        {"input": input},
        credentials=stack.caller,
        headers={"Idempotency-Key": run},
    )
    assert reply.status == 202, reply
    run_id: str = reply.json["run_id"]
    return run_id


def signals(stack: Stack, to: StreamKey) -> list[dict[str, Any]]:
    """The signals of a stream run, over HTTP."""
    path = f"/v1/streams/{to.stream}/signals?stream_run_id={to.run}"
    reply = stack.http("GET", path, credentials=stack.caller)
    assert reply.status == 200, reply
    found: list[dict[str, Any]] = reply.json["signals"]
    return found


def send(stack: Stack, sent: Sent) -> None:
    """Send a signal over HTTP, once those before it are on its stream run."""
    what = f"{sent.behind} signals are on {sent.to}"
    until(what, lambda: len(signals(stack, sent.to)) >= sent.behind or None)
    body = {"type": sent.type, "payload": sent.payload or {}, "idempotency_key": sent.key}
    path = f"/v1/streams/{sent.stream}/signals?stream_run_id={sent.run}"
    reply = stack.http("POST", path, {"signals": [body]}, credentials=stack.caller)
    assert reply.status == 202, reply


def test_a_text_is_reviewed_and_published(stack: Stack, world: Outside) -> None:
    run_id = stack.start("publication", title="tea", first="TEA")
    for sent in EXAMPLES["review"].signals:
        send(stack, sent)
    assert stack.ended(run_id)["result"] == "published: T"
    reviewer = subscription_run_id(StreamKey("review", "tea"), "reviewer")
    expected = EXAMPLES["review"].effects
    assert had(world, (run_id, reviewer), expected) == dict(sorted(expected.items()))
    check_over(stack, run_id, reviewer)


def test_a_review_shows_what_it_waits_for(stack: Stack, world: Outside) -> None:
    run_id = stack.start("publication", title="coffee", first="one")
    for number, text in ((1, "two"), (2, "three")):
        send(
            stack,
            Sent(
                stream="review",
                run="coffee",
                type="draft.sent",
                payload={"text": text},
                behind=number,
            ),
        )
    until("the run shows the reason", lambda: stack.waits(run_id).get("reason"))
    assert stack.waits(run_id)["reason"] == "an editor has to look at 'three'"
    bad = {"signals": [{"type": "editor.decided", "payload": {"approved": True}}]}
    path = "/v1/streams/review/signals?stream_run_id=coffee"
    refused = stack.http("POST", path, bad, credentials=stack.caller)
    assert (refused.status, refused.json["code"]) == (422, "signal_rejected")
    stack.send(
        {
            "type": "signal",
            "stream": "review",
            "stream_run_id": "coffee",
            "signal_type": "editor.decided",
            "payload": {"approved": False, "editor": "Ada"},
        }
    )
    assert stack.ended(run_id)["result"] == "turned down by Ada"


@pytest.mark.parametrize("disputed", [True, False], ids=["disputed", "settled"])
def test_an_order_goes_through_two_streams(disputed: bool, stack: Stack, world: Outside) -> None:
    number = "order-7" if disputed else "order-8"
    run_id = stack.start("pipeline.sale", number=number)
    send(stack, Sent(stream="pipeline.orders", run=number, type="order.placed", payload=PLACED))
    if disputed:
        send(stack, EXAMPLES["pipeline"].signals[-1])
    billing = StreamKey("pipeline.billing", number)
    until("the parcel is shipped", lambda: signals(stack, billing) or None)
    with time_passing(stack, hours=(1 if disputed else 16) * DAY + 1):
        result = stack.ended(run_id)["result"]
    assert (result["parcel"], result["refunded"]) == ("2 x tea to Quay 1", disputed)
    keeper = subscription_run_id(billing, "bookkeeping")
    kinds = ("bill charged", "bill refunded")
    expected = {"bill charged": 1, "bill refunded": int(disputed)}
    assert had(world, (keeper,), dict.fromkeys(kinds, 0)) == expected
    with time_passing(stack, hours=16 * DAY):  # what was scheduled comes, though nobody waits
        until("its last signal comes", lambda: len(signals(stack, billing)) == 2 + disputed or None)
    check_over(stack, run_id, keeper)


def test_a_chat_answers_each_message_once(stack: Stack, world: Outside) -> None:
    run_id = start(stack, "chat", "ada", greeting="Good morning")
    to = StreamKey("chat", "ada")
    until("the agent greets", lambda: signals(stack, to) or None)
    for number in range(12):
        body = {"type": "signal", "stream": "chat", "stream_run_id": "ada"}
        body |= {"signal_type": "user.said", "idempotency_key": f"message {number}"}
        for _ in range(2):
            stack.send({**body, "payload": {"text": f"message {number}"}})

    def answered() -> list[int]:
        said = [each for each in signals(stack, to) if each["type"] == "agent.said"]
        return [number for each in said for number in each["payload"]["to"]]

    until("all are answered", lambda: len(answered()) >= 12 or None)
    said = [each["sequence"] for each in signals(stack, to) if each["type"] == "user.said"]
    assert answered() == said
    assert len(said) == 12
    send(stack, Sent(stream="chat", run="ada", type="user.left"))
    result = stack.ended(run_id)["result"]
    assert result["step_results"]["agent"]["messages"] == 12
