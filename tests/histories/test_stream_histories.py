"""Subscriptions that were recorded once, by older code: their handlings must go on to replay.

If one of these fails, subscriptions like it would block in production: mend the code, never the
recording.
"""

from __future__ import annotations

import pytest

from stepwell.core import events as e
from stepwell.core.state import fold
from stepwell.engine.endings import Blocked
from stepwell.testing.handlings import replay_handlings
from stepwell.testing.histories import History, import_history
from stepwell.testing.laws import check_handlings
from tests.histories.streams import (
    FOLDER,
    STREAM_RECORDINGS,
    StreamRecording,
    record_missing_streams,
)

every = pytest.mark.parametrize(
    "recording", STREAM_RECORDINGS, ids=lambda recording: recording.name
)


def recorded_stream(recording: StreamRecording) -> History:
    """What is in the recording's file."""
    return import_history(recording.path.read_text(encoding="utf-8"))


@every
def test_each_recorded_handling_replays_to_its_recorded_end(recording: StreamRecording) -> None:
    history = recorded_stream(recording)
    replayed = list(replay_handlings(recording.definition, history.events, run_id=history.run_id))
    for each in replayed:
        each.check()
    taken = [each for each in history.events if isinstance(each, e.SignalTaken)]
    assert len(replayed) >= len(taken) > 2


@every
def test_every_beginning_of_a_recorded_handling_replays(recording: StreamRecording) -> None:
    history = recorded_stream(recording)
    for cut in range(1, len(history.events)):
        *_, last = [None, *replay_handlings(recording.definition, history.events[:cut])]
        assert last is None or not isinstance(last.outcome, Blocked), (cut, last.outcome)


@every
def test_a_recorded_subscription_obeys_the_laws(recording: StreamRecording) -> None:
    events = recorded_stream(recording).events
    check_handlings(events)
    state = fold(events)
    assert state.subscription is not None
    assert state.subscription.handled > 2


def test_every_recorded_subscription_has_its_code() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {
        each.path.name for each in STREAM_RECORDINGS
    }


def test_recording_a_subscription_again_overwrites_nothing() -> None:
    assert record_missing_streams() == []
