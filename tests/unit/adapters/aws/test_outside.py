"""Messages from outside, as JSON."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from stepwell.adapters.aws.handlers.batch import describe_problems
from stepwell.adapters.aws.handlers.outside import Cancel, ResumeHook, Start, load_received
from stepwell.core.messages import TimerDue


def test_what_may_be_left_out_has_a_default() -> None:
    assert load_received('{"type": "start", "workflow": "w"}') == Start(type="start", workflow="w")
    found = load_received('{"type": "resume_hook", "token": "t"}')
    assert found == ResumeHook(type="resume_hook", token="t", payload=None)
    assert load_received('{"type": "cancel", "run_id": "r"}') == Cancel(type="cancel", run_id="r")


def test_any_json_is_a_payload() -> None:
    found = load_received('{"type": "resume_hook", "token": "t", "payload": {"a": [1, null]}}')
    assert isinstance(found, ResumeHook)
    assert found.payload == {"a": [1, None]}


def test_a_timer_of_the_engine_is_taken() -> None:
    timer = TimerDue(run_id="r", wait_id="w", arm=1, due=5)
    assert load_received(timer.model_dump_json()) == timer


def test_neither_tokens_nor_payloads_show_in_a_repr() -> None:
    found = load_received('{"type": "resume_hook", "token": "TOKEN", "payload": "PAYLOAD"}')
    start = load_received('{"type": "start", "workflow": "w", "input": {"a": "INPUT"}}')
    assert not any(word in repr([found, start]) for word in ("TOKEN", "PAYLOAD", "INPUT"))


@pytest.mark.parametrize(
    "body",
    [
        '{"type": "SECRET"}',
        '{"type": "resume_hook", "token": ["SECRET"]}',
        '{"type": "start", "workflow": {"a": "SECRET"}}',
        '"SECRET"',
        "SECRET",
    ],
)
def test_a_problem_is_told_without_any_value(body: str) -> None:
    with pytest.raises(ValidationError) as caught:
        load_received(body)
    told = describe_problems(caught.value)
    assert told
    assert "SECRET" not in told


def test_a_long_problem_is_cut() -> None:
    with pytest.raises(ValidationError) as caught:
        load_received('{"type": "start", "workflow": "w", "' + "x" * 5000 + '": 1}')
    assert len(describe_problems(caught.value)) == 500
