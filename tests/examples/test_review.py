"""The review: drafts are looked at once, and a person decides in the end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from examples.outside import Outside
from examples.review.stream import PATIENCE, STREAM, publication
from stepwell.adapters.local.clock import SkippingClock
from stepwell.adapters.local.wiring import open_ports
from stepwell.client import RunHandle
from stepwell.core.messages import SignalSent
from stepwell.core.records import RunStatus
from stepwell.core.signals import SentSignal, StreamKey
from stepwell.errors import SignalRejected
from stepwell.testing import Environment

ADA = {"approved": True, "editor": "Ada"}


def send(env: Environment, kind: str, payload: Any, key: str | None = None) -> None:
    """Send a signal to the review of the text on tea."""
    client = env.client
    env.wait_for(client.emit(STREAM, kind, payload, stream_run_id="tea", idempotency_key=key))
    env.run_until_idle()


async def put_in_queue(path: Path, kind: str, payload: Any) -> None:
    """Send a signal as somebody does who knows nothing of the review but its queue."""
    clock = SkippingClock(0)
    sent = SentSignal(
        signal_id="from-elsewhere", type=kind, payload=json.dumps(payload), published_at=clock.now()
    )
    ports = open_ports(path, clock=clock)
    await ports.ports.signals.send([SignalSent.of(StreamKey(STREAM, "tea"), sent)])
    ports.close()


def begun(env: Environment, drafts: int = 1) -> RunHandle[str]:
    """A review that has seen so many drafts."""
    run = env.start(publication, "tea", "TEA")
    env.run_until_idle()
    for number in range(2, drafts + 1):
        send(env, "draft.sent", {"text": f"On tea, draft {number}"})
    return run


def reasons(env: Environment, run: RunHandle[str]) -> list[str | None]:
    """What a run shows of what it waits for."""
    return [wait.reason for wait in env.get(run).waiting]


def looked_at(world: Outside) -> list[str]:
    """The drafts that somebody has looked at, in order."""
    return list(world.effects("draft looked at").values())


def test_a_text_is_published_once_an_editor_wants_it(
    stepwell_env: Environment, world: Outside
) -> None:
    run = begun(stepwell_env, PATIENCE)
    assert reasons(stepwell_env, run) == ["an editor has to look at 'On tea, draft 3'"]
    send(stepwell_env, "editor.decided", ADA)
    assert stepwell_env.result(run) == "published: On tea, draft 3"
    assert looked_at(world) == ["TEA", "On tea, draft 2", "On tea, draft 3"]
    assert list(world.effects("published").values()) == ["On tea, draft 3"]


def test_what_is_said_of_each_draft_is_kept(stepwell_env: Environment, world: Outside) -> None:
    begun(stepwell_env, PATIENCE)
    send(stepwell_env, "editor.decided", ADA)
    stream = stepwell_env.wait_for(stepwell_env.client.stream(STREAM, stream_run_id="tea"))
    result = stepwell_env.wait_for(stepwell_env.client.get(stream.run_id)).result
    assert '"remarks":[["too short","too loud"],[],[]]' in str(result)


def test_an_editor_may_turn_it_down_before_there_are_enough_drafts(
    stepwell_env: Environment, world: Outside
) -> None:
    run = begun(stepwell_env)
    assert reasons(stepwell_env, run) == [None]
    send(stepwell_env, "editor.decided", {"approved": False, "editor": "Ada"})
    assert stepwell_env.result(run) == "turned down by Ada"
    assert "published" not in world.done()


def test_drafts_are_held_while_an_editor_has_to_look(
    stepwell_env: Environment, world: Outside
) -> None:
    run = begun(stepwell_env, PATIENCE + 2)
    stepwell_env.advance("400d")
    assert len(looked_at(world)) == PATIENCE
    found = stepwell_env.wait_for(stepwell_env.client.stream(STREAM, stream_run_id="tea"))
    [reviewer] = found.subscriptions
    assert (found.status, reviewer.status, reviewer.lag) == ("suspended", "suspended", 2)
    send(stepwell_env, "editor.decided", ADA)
    assert stepwell_env.result(run) == "published: On tea, draft 3"
    assert len(looked_at(world)) == PATIENCE


def test_a_draft_that_is_sent_twice_under_a_key_is_one(
    stepwell_env: Environment, world: Outside
) -> None:
    run = begun(stepwell_env)
    for _ in range(PATIENCE):
        send(stepwell_env, "draft.sent", {"text": "On drinking tea"}, key="second")
        stepwell_env.advance("1d")
    assert looked_at(world) == ["TEA", "On drinking tea"]
    assert reasons(stepwell_env, run) == [None]


def test_a_decision_without_an_editor_is_refused_where_it_is_sent(
    stepwell_env: Environment, world: Outside
) -> None:
    run = begun(stepwell_env, PATIENCE)
    with pytest.raises(SignalRejected, match="editor"):
        send(stepwell_env, "editor.decided", {"approved": True})
    found = stepwell_env.wait_for(stepwell_env.client.signals(STREAM, stream_run_id="tea"))
    assert [each.signal_type for each in found] == ["draft.sent"] * PATIENCE
    send(stepwell_env, "editor.decided", ADA)
    assert stepwell_env.result(run) == "published: On tea, draft 3"


def test_a_decision_without_an_editor_that_comes_by_the_queue_is_put_aside(
    tmp_path: Path, world: Outside
) -> None:
    path = tmp_path / "stepwell.sqlite3"
    with Environment(path=path) as env:
        run = begun(env, PATIENCE)
        env.wait_for(put_in_queue(path, "editor.decided", {"approved": True}))
        env.run_until_idle()
        parked = env.client.parked_signals(STREAM, "reviewer", stream_run_id="tea")
        [aside] = env.wait_for(parked)
        assert (aside.sequence, aside.attempts, aside.blocks) == (PATIENCE + 1, 1, False)
        assert "editor" in aside.error.message
        assert reasons(env, run) == ["an editor has to look at 'On tea, draft 3'"]
        send(env, "editor.decided", ADA)
        assert env.result(run) == "published: On tea, draft 3"


def test_a_reader_who_does_not_answer_is_asked_again(
    stepwell_env: Environment, world: Outside
) -> None:
    world.fail("draft looked at", times=2)
    begun(stepwell_env)
    stepwell_env.advance("1m")
    assert looked_at(world) == ["TEA"]
    assert world.requests("draft looked at") == 3


def test_a_review_is_blocked_by_a_draft_that_nobody_can_look_at(
    stepwell_env: Environment, world: Outside
) -> None:
    world.fail("draft looked at", times=12)
    begun(stepwell_env)
    stepwell_env.advance("1d")
    send(stepwell_env, "draft.sent", {"text": "On tea, at length"})
    assert looked_at(world) == []
    found = stepwell_env.wait_for(stepwell_env.client.stream(STREAM, stream_run_id="tea"))
    assert found.subscriptions[0].blocked_by == 1
    redriven = stepwell_env.client.redrive_signal(STREAM, "reviewer", 1, stream_run_id="tea")
    stepwell_env.wait_for(redriven)
    stepwell_env.run_until_idle()
    assert looked_at(world) == ["TEA", "On tea, at length"]


def test_a_review_that_is_cancelled_takes_no_more_drafts(
    stepwell_env: Environment, world: Outside
) -> None:
    run = begun(stepwell_env, 2)
    stepwell_env.cancel(run)
    runs = stepwell_env.wait_for(stepwell_env.client.list_runs()).items
    assert {each.status for each in runs} == {RunStatus.CANCELLED}
    assert len(looked_at(world)) == 2
