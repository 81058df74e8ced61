"""Judges what came of a play: everything that a scenario expects, and nothing besides.

What must hold in any case, laws and promises, is not said in scenarios.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from examples.outside import Outside
from stepwell.client import Resumed, RunHandle
from stepwell.core import events as e
from stepwell.core.durations import to_millis
from stepwell.core.records import HookRow, RunStatus
from stepwell.errors import (
    HookAlreadyDecided,
    HookExpired,
    HookNotFound,
    IdempotencyConflict,
    InvalidToken,
    PayloadRejected,
    RunDeleted,
    RunNotEnded,
    RunNotFound,
    SignalRejected,
    StreamEnded,
)
from stepwell.testing.facts import RunFacts
from stepwell.testing.simulation.cluster import Request
from tests.acceptance.acts import Stage
from tests.acceptance.scenario import Expect

_REFUSALS: Mapping[type[Exception], str] = {
    IdempotencyConflict: "other input",
    HookAlreadyDecided: "decided otherwise",
    HookExpired: "too late",
    HookNotFound: "no hook",
    InvalidToken: "no token",
    PayloadRejected: "rejected",
    RunNotFound: "no run",
    RunDeleted: "deleted",
    RunNotEnded: "not ended",
    SignalRejected: "rejected",
    StreamEnded: "ended",
}


@dataclass(frozen=True, slots=True)
class Came:
    """What came of a play, as far as two plays of one scenario must be alike when asked to be."""

    ends: tuple[tuple[RunStatus, str | None, str | None], ...]
    effects: Mapping[str, Mapping[str, str]]
    requests: Mapping[str, int]


def came_of(stage: Stage, world: Outside) -> Came:
    """Look at what came of it."""
    headers = stage.sim.headers()
    ends = tuple((each.status, each.result, each.error and each.error.type) for each in headers)
    kinds = [row[0] for row in world._database.execute("SELECT DISTINCT kind FROM requests")]
    return Came(
        ends=ends,
        effects={kind: world.effects(kind) for kind in kinds},
        requests={kind: world.requests(kind) for kind in kinds},
    )


def judge(expect: Expect, stage: Stage, came: Came, plain: Came | None) -> None:
    """That it came as expected. Raises `AssertionError`."""
    runs = stage.sim.run_ids()
    _equal("runs", len(runs), expect.runs)
    for run_id in () if expect.of else runs:
        _run(expect, stage.sim.facts(run_id), "a run")
    for starter, each in expect.of.items():
        run_id = stage.run_id(starter)
        assert run_id is not None, f"{starter} has no run"
        _run(each, stage.sim.facts(run_id), f"the run of {starter}")
    _callers(expect, stage)
    _outside(expect, came)
    _left(expect, stage)
    if plain is not None:
        _equal("ends, as without faults", came.ends, plain.ends)
        _equal("effects, as without faults", came.effects, plain.effects)


def _run(expect: Expect, facts: RunFacts, whose: str) -> None:
    header = facts.rows.header
    assert header is not None
    statuses = (expect.status,) if isinstance(expect.status, str) else expect.status
    if statuses:
        assert header.status in statuses, f"{whose} is {header.status}, not {statuses}: {header}"
    error = "" if header.error is None else header.error.type.rpartition(".")[2]
    if expect.error:
        _equal(f"error of {whose}", error, expect.error)
    if expect.says:
        said = "" if header.error is None else header.error.message
        assert expect.says in said, f"{whose} says {said!r}, not {expect.says!r}"
    _note(expect, facts, whose)
    _result(expect, facts, whose)
    _history(expect, facts.events, whose)
    for name, status in expect.hooks.items():
        found = {row.status for row in facts.rows.hooks if name in (row.name, row.hook_id)}
        _equal(f"hooks {name!r} of {whose}", found, {status})
    for step, chunks in expect.output.items():
        _equal(f"output of {step!r} of {whose}", _output(facts, step), list(chunks))


def _note(expect: Expect, facts: RunFacts, whose: str) -> None:
    assert facts.rows.header is not None
    note = facts.rows.header.attention
    if expect.attention is not None:
        _equal(f"attention of {whose}", "" if note is None else note.kind, expect.attention)
    if expect.attention_says:
        said = "" if note is None else note.reason
        assert expect.attention_says in said, f"the note of {whose} says {said!r}"


def _result(expect: Expect, facts: RunFacts, whose: str) -> None:
    allowed = expect.results or ((expect.result,) if expect.result is not None else ())
    if allowed:
        assert facts.rows.header is not None
        text = facts.rows.header.result
        result = None if text is None else json.loads(facts.texts.get(text, text))
        same = json.dumps(result) in {json.dumps(each) for each in allowed}
        assert same, f"{whose} has the result {result!r}, not one of {allowed!r}"


def _history(expect: Expect, events: tuple[e.Event, ...], whose: str) -> None:
    types = [event.type for event in events]
    counts = Counter(types)
    for kind, wanted in expect.events.items():
        known = {each.__name__ for each in e.Event.__args__}
        assert kind in known, f"there is no event {kind!r}"
        _number(f"{kind} of {whose}", counts[kind], wanted)  # type: ignore[index]
    for kind in expect.never:
        assert kind not in types, f"{whose}: {kind} came"
    places = iter(types)
    assert all(kind in places for kind in expect.order), f"{whose}: {types}, not {expect.order}"
    for gap in expect.gaps:
        first = next(n for n, event in enumerate(events) if event.type == gap["after"])
        then = next(event for event in events[first + 1 :] if event.type == gap["event"])
        took = then.at - events[first].at
        least, most = gap.get("least"), gap.get("most")
        early = least is not None and took < to_millis(least)
        late = most is not None and took > to_millis(most)
        fits = not early and not late
        assert fits, f"{whose}: {gap} took {took} ms"


def _output(facts: RunFacts, step: str) -> list[Any]:
    """What a reader has in the end."""
    had: list[Any] = []
    for chunk in facts.output.get(step, ()):
        if chunk.value is None:
            del had[chunk.number :]
        else:
            had.append(json.loads(chunk.value))
    return had


def _callers(expect: Expect, stage: Stage) -> None:
    told = {request.name: _told(request) for request in stage.sim.cluster.requests}
    for name, wanted in expect.told.items():
        assert name in told, f"nobody is called {name!r}: {sorted(told)}"
        allowed = (wanted,) if isinstance(wanted, str) else tuple(wanted)
        assert told[name] in allowed, f"{name} was told {told[name]!r}, not {allowed}"
    counts = Counter(told.values())
    for word, wanted in expect.tally.items():
        _equal(f"callers told {word!r}", counts[word], wanted)


def _told(request: Request) -> str:
    """What somebody was told, in a word or two; "nothing" when he got no answer."""
    if request.error is not None:
        return _REFUSALS.get(type(request.error), type(request.error).__name__)
    result = request.result
    if isinstance(result, RunHandle):
        return "same run" if result.repeated else "started"
    if isinstance(result, Resumed):
        return "repeated" if result.repeated else "answered"
    if isinstance(result, HookRow):
        return result.status.lower()
    return "accepted" if request.begun and not request.gone else "nothing"


def _outside(expect: Expect, came: Came) -> None:
    for kind, wanted in expect.effects.items():
        table = wanted if isinstance(wanted, Mapping) else {"effects": wanted}
        assert set(table) <= {"effects", "requests", "what"}, f"effects {kind!r}: {table}"
        done = came.effects.get(kind, {})
        if "effects" in table:
            _number(f"effects {kind!r}", len(done), table["effects"])
        if "requests" in table:
            _number(f"requests {kind!r}", came.requests.get(kind, 0), table["requests"])
        if "what" in table:
            _equal(f"effects {kind!r}", sorted(done.values()), sorted(table["what"]))


def _left(expect: Expect, stage: Stage) -> None:
    cluster = stage.sim.cluster
    queues = (cluster.queue, cluster.steps)
    _equal("messages left", sum(len(each.letters) for each in queues), expect.messages)
    dead = sum(len(each.dead) + len(each.buried) for each in queues)
    _number("dead letters", dead, expect.dead_letters)
    rows = [row for run_id in stage.sim.run_ids() for row in stage.sim.facts(run_id).rows.hooks]
    _equal("open hooks", sum(row.status == "PENDING" for row in rows), expect.open_hooks)
    turns = Counter(cluster.record.turns)
    for end, wanted in expect.turns.items():
        _number(f"turns that ended with {end!r}", turns[end], wanted)  # type: ignore[index]


def _number(what: str, found: int, wanted: Any) -> None:
    """A number is wanted exactly, two are the least and the most."""
    least, most = wanted if isinstance(wanted, (tuple, list)) else (wanted, wanted)
    assert least <= found <= most, f"{what}: {found}, not {wanted}"


def _equal(what: str, found: Any, wanted: Any) -> None:
    assert found == wanted, f"{what}: {found!r}, not {wanted!r}"
