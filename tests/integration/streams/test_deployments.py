"""Code of streams that changes while stream runs go on."""

from __future__ import annotations

from typing import Any

from stepwell import get_current_signal, stream_step, stream_workflow, terminate
from stepwell.authoring.registry import registry
from stepwell.testing import Environment
from tests.integration.streams.given import begin, send, standing, subscription

Seen = list[Any]


def deploy(stream: Any, seen: Seen, *kinds: str, name: str = "clerk") -> None:
    """Put a step in the place of the one of this name."""
    registry._stream_steps[-1].pop(f"office/{name}", None)

    @stream_step(stream=stream, signals=[*kinds, "over"], name=name)
    async def clerk() -> None:
        signal = await get_current_signal()
        if signal is None:
            return
        seen.append((name, signal.signal_type, signal.sequence))
        if signal.signal_type == "over":
            await terminate()


def office() -> Any:
    """A stream."""

    @stream_workflow(name="office")
    async def body() -> None: ...

    return body


def test_a_type_that_a_step_takes_from_now_on_wakes_it(stepwell_env: Environment) -> None:
    seen: Seen = []
    stream = office()
    deploy(stream, seen, "letter")
    begin(stepwell_env, stream)
    send(stepwell_env, "office", "letter")
    deploy(stream, seen, "letter", "parcel")
    send(stepwell_env, "office", "parcel")
    assert seen == [("clerk", "letter", 1), ("clerk", "parcel", 2)]
    assert subscription(stepwell_env, "office", "clerk").types == ("letter", "parcel", "over")


def test_a_type_that_a_step_takes_no_more_is_passed_over(stepwell_env: Environment) -> None:
    seen: Seen = []
    stream = office()
    deploy(stream, seen, "letter", "parcel")
    begin(stepwell_env, stream)
    deploy(stream, seen, "letter")
    send(stepwell_env, "office", "parcel")
    send(stepwell_env, "office", "letter")
    turns = len(stepwell_env.turns)
    send(stepwell_env, "office", "parcel")
    assert len(stepwell_env.turns) == turns, "its row has followed, nobody is woken"
    assert seen == [("clerk", "letter", 2)]
    assert subscription(stepwell_env, "office", "clerk").types == ("letter", "over")


def test_a_step_that_is_added_is_one_of_later_stream_runs_only(stepwell_env: Environment) -> None:
    seen: Seen = []
    stream = office()
    deploy(stream, seen, "letter")
    run = begin(stepwell_env, stream, run="old")
    deploy(stream, seen, "letter", name="porter")
    begin(stepwell_env, stream, run="new")
    for name in ("old", "new"):
        send(stepwell_env, "office", "over", stream_run_id=name)
    assert seen == [("clerk", "over", 1), ("clerk", "over", 1), ("porter", "over", 1)]
    assert stepwell_env.result(run).step_states == {"clerk": "terminated"}
    assert len(standing(stepwell_env, "office", "new").subscriptions) == 2


def test_a_step_whose_code_is_gone_is_blocked_and_goes_on_when_it_is_back(
    stepwell_env: Environment,
) -> None:
    seen: Seen = []
    stream = office()
    deploy(stream, seen, "letter")
    begin(stepwell_env, stream)
    kept = registry._stream_steps[-1].pop("office/clerk")
    send(stepwell_env, "office", "letter")
    found = subscription(stepwell_env, "office", "clerk")
    assert (found.attention, seen) == ("BLOCKED", [])
    registry._stream_steps[-1]["office/clerk"] = kept
    stepwell_env.wait_for(stepwell_env.client.wake(found.run_id))
    stepwell_env.run_until_idle()
    assert seen == [("clerk", "letter", 1)]
    assert subscription(stepwell_env, "office", "clerk").attention is None
