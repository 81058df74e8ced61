"""The agent: what it asks, what it does not do twice, and what its visitor gets to read."""

from __future__ import annotations

from typing import Any

import pytest

from examples.agent.messages import Conversation
from examples.agent.model import SCRIPT
from examples.agent.naive import assist_naively
from examples.agent.workflow import assist
from examples.outside import Outside
from stepwell.client import RunHandle
from stepwell.core.records import RunStatus
from stepwell.errors import PayloadRejected
from stepwell.testing import Environment
from stepwell.testing.laws import check_run

#: All that the model says.
WORDS = [word for turn in SCRIPT for word in turn.text.split()]


def tool_messages(conversation: Conversation) -> dict[str, str]:
    """What each tool call came to."""
    return {each.call: each.text for each in conversation.transcript if each.role == "tool"}


def begun(env: Environment) -> RunHandle[Conversation]:
    """A run that waits for its first question."""
    run = env.start(assist, "a flight to Oslo")
    env.run_until_idle()
    return run


def reply(env: Environment, call: str, text: str) -> None:
    """Answer the one open question, which has to be that of this call."""
    [hook] = env.hooks()
    assert hook.hook_id == f"converse:1>visitor@{call}"
    env.resume_hook(hook.token, {"text": text})


def read(env: Environment, run: RunHandle[Any], *, after: int = 0) -> list[Any]:
    """What the visitor reads; there must be nothing to take back."""
    chunks = env.output(run, "converse:1", after=after)
    assert not any(chunk.reset for chunk in chunks)
    return [chunk.value for chunk in chunks]


def test_two_questions_in_a_row_are_answered_each_by_its_own_hook(
    stepwell_env: Environment, world: Outside
) -> None:
    run = begun(stepwell_env)
    reply(stepwell_env, "call-3", "aisle")
    reply(stepwell_env, "call-4", "yes, please")
    answers = tool_messages(stepwell_env.result(run))
    assert (answers["call-3"], answers["call-4"]) == ("aisle", "yes, please")
    check_run(stepwell_env, run)


def test_the_step_waits_at_its_boundary_with_the_transcript_in_its_checkpoint(
    stepwell_env: Environment, world: Outside
) -> None:
    run = begun(stepwell_env)
    assert stepwell_env.get(run).status is RunStatus.SUSPENDED
    [suspended] = [
        each.event for each in stepwell_env.history(run) if each.event.type == "StepSuspended"
    ]
    assert suspended.save_id is not None


def test_a_question_that_is_not_answered_becomes_a_message_to_the_model(
    stepwell_env: Environment, world: Outside
) -> None:
    run = begun(stepwell_env)
    stepwell_env.advance("15m")
    reply(stepwell_env, "call-4", "yes")
    answers = tool_messages(stepwell_env.result(run))
    assert answers["call-3"] == "the visitor did not respond"
    assert answers["call-4"] == "yes"


def test_no_answer_at_all_still_ends_the_conversation(
    stepwell_env: Environment, world: Outside
) -> None:
    run = begun(stepwell_env)
    stepwell_env.advance("1h")
    answers = tool_messages(stepwell_env.result(run))
    assert answers["call-3"] == answers["call-4"] == "the visitor did not respond"


def test_nothing_before_a_question_is_done_again_after_it(
    stepwell_env: Environment, world: Outside
) -> None:
    run = begun(stepwell_env)
    assert world.requests("model turn") == 2
    reply(stepwell_env, "call-3", "aisle")
    reply(stepwell_env, "call-4", "yes")
    stepwell_env.result(run)
    assert world.requests("model turn") == 4
    assert world.requests("tool run") == 4
    assert world.requests("seat held") == 1
    assert world.requests("question") == 2


def test_credit_is_taken_on_the_first_pass_only(stepwell_env: Environment, world: Outside) -> None:
    run = begun(stepwell_env)
    reply(stepwell_env, "call-3", "aisle")
    reply(stepwell_env, "call-4", "yes")
    stepwell_env.result(run)
    assert world.requests("credit") == 1


def test_a_tool_that_fails_becomes_a_message_to_the_model(
    stepwell_env: Environment, world: Outside
) -> None:
    run = begun(stepwell_env)
    stepwell_env.advance("1h")
    assert tool_messages(stepwell_env.result(run))["call-1"].startswith("error: ")


def test_the_visitor_reads_each_word_once_and_goes_on_where_they_were(
    stepwell_env: Environment, world: Outside
) -> None:
    run = begun(stepwell_env)
    before = read(stepwell_env, run)
    assert before == WORDS[:9]
    reply(stepwell_env, "call-3", "aisle")
    assert read(stepwell_env, run, after=len(before)) == WORDS[9:10]
    reply(stepwell_env, "call-4", "yes")
    assert read(stepwell_env, run) == WORDS


def test_an_answer_that_is_no_reply_leaves_the_question_open(
    stepwell_env: Environment, world: Outside
) -> None:
    run = begun(stepwell_env)
    [hook] = stepwell_env.hooks()
    with pytest.raises(PayloadRejected):
        stepwell_env.resume_hook(hook.token, "aisle")
    assert world.requests("model turn") == 2
    reply(stepwell_env, "call-3", "aisle")
    reply(stepwell_env, "call-4", "yes")
    assert tool_messages(stepwell_env.result(run))["call-3"] == "aisle"


def test_a_wait_inside_of_a_tool_is_kept_though_the_middleware_swallows_it(
    stepwell_env: Environment, world: Outside
) -> None:
    run = stepwell_env.start(assist_naively, "a flight to Oslo")
    stepwell_env.run_until_idle()
    for call, text in (("call-3", "aisle"), ("call-4", "yes")):
        assert stepwell_env.get(run).status is RunStatus.SUSPENDED
        [hook] = stepwell_env.hooks(run)
        assert hook.hook_id == f"converse_naively:1>visitor@{call}"
        stepwell_env.resume_hook(hook.token, {"text": text})
    answers = tool_messages(stepwell_env.result(run))
    assert (answers["call-3"], answers["call-4"]) == ("aisle", "yes")
    check_run(stepwell_env, run)


def test_what_the_naive_form_does_again_has_its_effects_once(
    stepwell_env: Environment, world: Outside
) -> None:
    run = stepwell_env.start(assist_naively, "a flight to Oslo")
    stepwell_env.run_until_idle()
    for text in ("aisle", "yes"):
        [hook] = stepwell_env.hooks(run)
        stepwell_env.resume_hook(hook.token, {"text": text})
    stepwell_env.result(run)
    assert world.requests("seat held") == 3
    assert len(world.effects("seat held")) == 1
