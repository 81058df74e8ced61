"""What a worker's log says of a commit."""

from __future__ import annotations

import logging

import pytest

from stepwell.adapters.local.reports import report
from stepwell.core import events as e
from stepwell.errors import Failure

_FAILED = e.RunFailed(at=2, error=Failure(type="builtins.ValueError", message="no"))
_COMPLETED = e.RunCompleted(at=4, result="1")


def _said(caplog: pytest.LogCaptureFixture, *events: e.Event) -> list[str]:
    with caplog.at_level(logging.INFO, "stepwell.local"):
        report("r", e.Commit(first=1, turn="t", number=1, events=events))
    return caplog.messages


def test_what_a_fork_copies_is_no_news(caplog: pytest.LogCaptureFixture) -> None:
    forked = e.RunForked(at=3, source="s", event=1)
    assert _said(caplog, _FAILED, forked, _COMPLETED) == ["run r: completed"]


def test_everything_else_is_said_in_order(caplog: pytest.LogCaptureFixture) -> None:
    assert [line[:11] for line in _said(caplog, _FAILED, _COMPLETED)] == [
        "run r: fail",
        "run r: comp",
    ]
