"""What an event takes in its log, without writing it."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepwell.core import events as e
from stepwell.core.state import fold
from stepwell.core.volume import volume
from stepwell.errors import Failure
from stepwell.testing.histories import import_history

RECORDED = sorted((Path(__file__).parents[2] / "histories" / "recorded").glob("**/*.json"))
AT = 1_893_456_000_000
FAILURE = Failure(
    type="builtins.ValueError",
    message='no "x" in C:\\ for \U0001f600',
    traceback='File "a.py", line 1\n  raise\n',
    cause=Failure(type="KeyError", message=""),
)


def completed(result: str, *, attempt: int = 1, output: int = 0) -> e.StepCompleted:
    return e.StepCompleted(
        at=AT,
        step="1/charge:12",
        name="charge",
        digest="d" * 64,
        attempt=attempt,
        result=result,
        output=output,
    )


@pytest.mark.parametrize(
    "event",
    [
        e.RunStarted(at=AT, workflow="w", version="1", input='{"a":"b"}', seed="s" * 32),
        completed("null"),
        completed('{"text":"a \\"b\\" \\u00fc","list":[1,2]}'),
        completed('"\u00fc \U0001f600"'),
        e.StepFailed(at=AT, step="s:1", name="s", digest="d", attempt=2, error=FAILURE),
        e.StepStarted(at=AT, step="s:1", name="s", digest="d", attempt=2, input='{"a":[]}'),
        e.HookOpened(at=AT, hook="h:1", name="h", step=None, expires_at=AT + 1),
        e.TimerFired(at=AT, timer="sleep:1", name="sleep", due=AT),
        e.RunCompleted(at=AT, result="[]"),
    ],
)
def test_it_is_what_is_written(event: e.Event) -> None:
    # A list of one event has two brackets, of which the comma after each event stands for one.
    assert volume(event) == len(e.dump_events([event])) - 1


def test_it_is_close_where_numbers_are_long() -> None:
    event = completed("1", attempt=10_000, output=1_000_000)
    assert len(e.dump_events([event])) - volume(event) < 16


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_the_fold_knows_how_large_a_history_is(path: Path) -> None:
    events = import_history(path.read_text(encoding="utf-8")).events
    written = len(e.dump_events(events))
    assert fold(events).volume == pytest.approx(written, rel=0.01, abs=2)


def test_there_are_histories() -> None:
    assert RECORDED
