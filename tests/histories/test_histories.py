"""Histories that were recorded once, by older code, and must replay for ever.

If one of these fails, runs like it would block in production: mend the code, never the recording.
"""

from __future__ import annotations

from typing import get_args

import pytest

from stepwell.core import events as e
from stepwell.core.failure import describe
from stepwell.core.state import fold
from stepwell.engine.endings import Blocked, Cancelled, Continues, Raised, Returned
from stepwell.testing.histories import History, import_history, replay_history
from stepwell.testing.laws import check_history
from tests.histories.recordings import FOLDER, RECORDINGS, Recording, record_missing
from tests.histories.streams import STREAM_RECORDINGS

every = pytest.mark.parametrize("recording", RECORDINGS, ids=lambda recording: recording.path.stem)


def recorded(recording: Recording) -> History:
    """What is in the recording's file."""
    return import_history(recording.path.read_text(encoding="utf-8"))


_BEGINS = ("RunStarted", "RunRetried", "RunForked")


@every
def test_a_recorded_history_replays_to_its_recorded_end(recording: Recording) -> None:
    history = recorded(recording)
    outcome = replay_history(recording.workflow, history.events).outcome
    match history.events[-1]:
        case e.RunCompleted(result=result):
            assert isinstance(outcome, Returned), outcome
            text, _ = recording.workflow.definition.result.round_trip(outcome.value)
            assert text == result
        case e.RunFailed(error=error):
            assert isinstance(outcome, Raised), outcome
            found = describe(outcome.error)
            assert (found.type, found.message) == (error.type, error.message)
        case e.RunCancelled():
            assert isinstance(outcome, Cancelled), outcome
        case e.RunContinued(input=text):
            assert isinstance(outcome, Continues), outcome
            assert outcome.input == text
        case _:
            assert outcome is None


@every
def test_a_replay_asks_for_nothing_that_was_not_recorded(recording: Recording) -> None:
    history = recorded(recording)
    state = fold(history.events)
    known = {*state.maps, *state.steps, *state.hooks, *state.timers, *state.children}
    waiting = replay_history(recording.workflow, history.events).waiting
    assert set(waiting) <= known
    if not state.terminal:
        assert waiting, "a run that has not ended waits for something"


@every
def test_every_beginning_of_a_recorded_history_replays(recording: Recording) -> None:
    history = recorded(recording)
    # What came before a retry may have been done by code that was mended since, and a fork's code
    # begins with all that was copied.
    begun = [n for n, each in enumerate(history.events, 1) if each.type in _BEGINS]
    for cut in range(max(begun), len(history.events)):
        replayed = replay_history(recording.workflow, history.events[:cut])
        assert not isinstance(replayed.outcome, Blocked), (cut, replayed.outcome)


@every
def test_a_recorded_history_obeys_the_laws(recording: Recording) -> None:
    check_history(recorded(recording).events, None, recording.workflow.definition)


def test_every_recorded_file_has_its_code() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {each.path.name for each in RECORDINGS}


def test_recording_again_overwrites_nothing() -> None:
    assert record_missing(RECORDINGS) == []


#: Of a deleted run no history is left.
NEVER_LEFT = {"RunDeleted"}


def test_the_recordings_hold_every_kind_of_event() -> None:
    paths = [each.path for each in (*RECORDINGS, *STREAM_RECORDINGS)]
    texts = [path.read_text(encoding="utf-8") for path in paths]
    found = {event.type for text in texts for event in import_history(text).events}
    assert found == {kind.__name__ for kind in get_args(e.Event)} - NEVER_LEFT
