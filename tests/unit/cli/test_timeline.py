"""Histories as timelines."""

from __future__ import annotations

from typing import get_args

import pytest

from stepwell.cli.timeline import COLUMNS, timeline
from stepwell.client import Recorded
from stepwell.core import events as e
from stepwell.core.records import Guards
from stepwell.errors import Failure

START = 1_893_456_000_000  # 2030-01-01T00:00:00Z
ERROR = Failure(type="Boom", message="first line\nsecond \x1b[31mline")


def rows(*events: e.Event) -> list[dict[str, str]]:
    history = [Recorded(number, event) for number, event in enumerate(events, 1)]
    return [dict(zip(COLUMNS, row, strict=True)) for row in timeline(history)]


def started() -> e.RunStarted:
    return e.RunStarted(at=START, workflow="flow", version="3", input='{"a":1}', seed="s")


def test_each_row_has_time_offset_event_and_what_it_is_about() -> None:
    timer = e.TimerStarted(at=START + 1500, timer="1/nap:2", name="nap", due=START + 61_500)
    first, second = rows(started(), timer)
    assert first == {
        "#": "1",
        "time": "2030-01-01T00:00:00.000Z",
        "offset": "+0ms",
        "event": "RunStarted",
        "name": "flow",
        "id": "",
        "details": 'version 3 · input {"a":1}',
    }
    assert second == {
        "#": "2",
        "time": "2030-01-01T00:00:01.500Z",
        "offset": "+1s500ms",
        "event": "TimerStarted",
        "name": "nap",
        "id": "1/nap:2",
        "details": "due 2030-01-01T00:01:01.500Z",
    }


def test_a_hook_in_a_step_is_shown_by_its_own_id_with_how_long_it_waited() -> None:
    opened = e.HookOpened(at=START, hook="ask:1>h:1", name="h", step="ask:1")
    received = e.HookReceived(
        at=START + 86_400_000,
        hook="ask:1>h:1",
        name="h",
        step="ask:1",
        decision_id="d",
        payload="[1]",
        actor="eve",
    )
    row = rows(started(), opened, received)[2]
    assert (row["name"], row["id"]) == ("h", "ask:1>h:1")
    assert row["details"] == "waited 1d · by eve · answer [1]"


def test_a_step_shows_how_long_a_counted_try_took() -> None:
    begun = e.StepStarted(at=START + 10, step="s:1", name="s", digest="d", attempt=2)
    done = e.StepCompleted(
        at=START + 40, step="s:1", name="s", digest="d", attempt=2, result="1", output=3
    )
    assert rows(started(), begun, done)[2]["details"] == (
        "attempt 2 · took 30ms · 3 chunks of output · result 1"
    )


def test_a_try_that_was_not_counted_claims_no_duration() -> None:
    begun = e.StepStarted(at=START, step="s:1", name="s", digest="d", attempt=1)
    retry = e.StepRetryScheduled(
        at=START + 10, step="s:1", name="s", digest="d", attempt=1, error=ERROR, due=START + 1010
    )
    done = e.StepCompleted(at=START + 1020, step="s:1", name="s", digest="d", attempt=2, result="1")
    _, _, failed, completed = rows(started(), begun, retry, done)
    assert (
        failed["details"]
        == "attempt 1 · took 10ms · Boom: first line second  [31mline · again in 1s"
    )
    assert completed["details"] == "attempt 2 · result 1"


def test_a_child_shows_its_run_and_how_long_it_took() -> None:
    begun = e.ChildStarted(
        at=START, child="c:1", name="c", run_id="r1", digest="d", version="1", input="{}",
        on_parent_close="abandon",
    )  # fmt: skip
    done = e.ChildEnded(
        at=START + 40, child="c:1", name="c", run_id="r2", status="completed", result="7"
    )
    _, first, second = rows(started(), begun, done)
    assert (first["name"], first["id"]) == ("c", "c:1")
    assert first["details"] == "run r1 · goes on when this run ends · input {}"
    assert second["details"] == "completed · run r2 · took 40ms · result 7"


def test_long_values_are_cut() -> None:
    done = e.RunCompleted(at=START + 5, result='"' + "x" * 5000 + '"')
    details = rows(started(), done)[1]["details"]
    assert details.startswith('took 5ms · result "xxx')
    assert details.endswith("…")
    assert len(details) < 100


ONE_OF_EACH: dict[type, e.Event] = {
    type(event): event
    for event in (
        started(),
        e.StepStarted(at=START, step="s:1", name="s", digest="d", attempt=1),
        e.StepCompleted(at=START, step="s:1", name="s", digest="d", attempt=1, result="1"),
        e.StepFailed(at=START, step="s:1", name="s", digest="d", attempt=1, error=ERROR),
        e.StepRetryScheduled(
            at=START, step="s:1", name="s", digest="d", attempt=1, error=ERROR, due=START
        ),
        e.StepSuspended(at=START, step="s:1", name="s", digest="d", attempt=1, entry=1),
        e.StepCancelled(at=START, step="s:1", name="s", digest="d"),
        e.MapStarted(at=START, map="m*:1", name="m", total=2),
        e.MapEnded(at=START, map="m*:1", name="m"),
        e.HookOpened(at=START, hook="h:1", name="h", expires_at=START, due_at=START),
        e.HookNotifyFailed(at=START, hook="h:1", name="h", attempt=1, error=ERROR, due=START),
        e.HookReceived(at=START, hook="h:1", name="h", decision_id="d", payload="1"),
        e.HookExpired(at=START, hook="h:1", name="h"),
        e.HookFailed(at=START, hook="h:1", name="h", error=ERROR),
        e.HookClosed(at=START, hook="h:1", name="h"),
        e.TimerStarted(at=START, timer="t:1", name="t", due=START),
        e.TimerFired(at=START, timer="t:1", name="t", due=START),
        e.TimerCancelled(at=START, timer="t:1", name="t"),
        e.RunDeleted(at=START, request_id="r", actor="eve"),
        e.PatchMarked(at=START, patch="new\nway"),
        e.AttributesSet(at=START, attributes='{"n":1}'),
        e.InboxReceived(at=START, entry="i", key="k\n", payload="[1]", actor="eve"),
        e.RunSuspended(at=START, reason="for\na word"),
        e.LookRequested(at=START, request_id="r", actor="eve"),
        e.GuardsReplaced(at=START, request_id="r", guards=Guards(before=("one",))),
        e.CancelRequested(at=START, request_id="r", reason="why", actor="eve"),
        e.RunCompleted(at=START, result="1"),
        e.RunFailed(at=START, error=ERROR),
        e.RunCancelled(at=START, reason="why"),
        e.RunRetried(at=START, request_id="r", actor="eve"),
        e.StepSuperseded(at=START, step="s:1", name="s"),
        e.RunForked(at=START, source="run", event=7, actor="eve"),
        e.ChildStarted(
            at=START, child="c:1", name="c", run_id="r", digest="d", version="1", input='"a\nb"'
        ),
        e.ChildCancelRequested(at=START, child="c:1", name="c", reason="why\nnot"),
        e.ChildEnded(
            at=START, child="c:1", name="c", run_id="r", status="failed", error=ERROR, result="1"
        ),
        e.RunContinued(at=START, next="n", version="1", input="{}", digest="d"),
        e.ChildWaits(at=START, child="c:1", name="c", order=3, reason="hitl"),
        e.SignalEmitted(
            at=START,
            emit="~emit.s:1",
            stream="s",
            stream_run="r",
            signal_id="sig_1",
            signal_type="t",
            payload="{}",
            digest="d",
            due=START + 5,
        ),
        e.SignalTaken(
            at=START,
            sequence=7,
            signal_id="sig_1",
            signal_type="t",
            payload="{}",
            published_at=START,
            held_from=5,
            redriven=True,
        ),
        e.SignalHandled(
            at=START, sequence=7, status="suspended", reason="hitl", result="1", acknowledged=(8, 9)
        ),
        e.SignalRetryScheduled(at=START, sequence=7, attempt=1, error=ERROR, due=START + 5),
        e.SignalParked(at=START, sequence=7, attempt=3, error=ERROR, blocks=True),
        e.SignalsHeld(at=START, until=9),
        e.SignalRedriven(at=START, sequence=7, request_id="q", actor="eve"),
        e.SignalDiscarded(at=START, sequence=7, request_id="q"),
        e.InboxPolled(at=START, poll="s7/~poll:1", signals="[]"),
        e.SubscriptionSnapshot(at=START, state="{}"),
    )
}


@pytest.mark.parametrize("kind", get_args(e.Event), ids=lambda kind: str(kind.__name__))
def test_every_event_has_a_row_of_one_line(kind: type) -> None:
    row = rows(started(), ONE_OF_EACH[kind])[1]
    assert row["event"] == kind.__name__
    assert all(text.isprintable() for text in row.values())


def test_a_signal_shows_how_long_it_took_and_what_it_came_to() -> None:
    taken = e.SignalTaken(
        at=START + 10, sequence=7, signal_id="sig_1", signal_type="paid", payload='{"a":1}',
        published_at=START, held_from=5,
    )  # fmt: skip
    handled = e.SignalHandled(
        at=START + 40, sequence=7, status="suspended", reason="hitl", acknowledged=(8, 9)
    )
    _, first, second = rows(started(), taken, handled)
    assert (first["name"], first["id"]) == ("paid", "s7")
    assert first["details"] == 'ahead of signal 5 · {"a":1}'
    assert second["id"] == "s7"
    assert second["details"] == "took 30ms · suspended: hitl · took 8, 9 from the inbox"
