"""`ask`: a question, and its answer as a value."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from stepwell import HookTimeout, PayloadRejected, UsageError, ask, step, workflow
from stepwell.testing import Environment


class Verdict(BaseModel):
    approved: bool


@workflow
async def asks_twice() -> list[Any]:
    return [await ask("Which colour?"), (await ask("Shall we?", schema=Verdict)).approved]


@workflow
def asks_in_thread() -> Any:
    return ask("Which colour?", key="colour")


@step
async def asks_in_step() -> str:
    return f"{await ask('Which colour?')} {await ask('And which size?', key='size')}"


@step(dispatch="worker")
def asks_elsewhere() -> str:
    return f"{ask('Which colour?')} {ask('And which size?', key='size')}"


@workflow
async def asks_below() -> str:
    return await asks_in_step()


@workflow
async def asks_far_below() -> str:
    return await asks_elsewhere.aio()


def answer(env: Environment, payload: Any) -> str:
    [hook] = env.hooks()
    env.resume_hook(hook.token, payload)
    return hook.question or ""


def test_a_question_is_shown_and_its_answer_is_the_value() -> None:
    with Environment() as env:
        run = env.start(asks_twice)
        env.run_until_idle()
        [wait] = env.get(run).waiting
        assert (wait.kind, wait.reason) == ("hook", "Which colour?")
        assert answer(env, "blue") == "Which colour?"
        with pytest.raises(PayloadRejected):
            answer(env, {"approved": "perhaps"})
        assert answer(env, {"approved": True}) == "Shall we?"
        assert env.result(run) == ["blue", True]


@pytest.mark.parametrize("flow", [asks_below, asks_far_below])
def test_a_step_asks_one_question_after_the_other(flow: Any) -> None:
    with Environment() as env:
        run = env.start(flow)
        env.run_until_idle()
        assert answer(env, "blue") == "Which colour?"
        assert answer(env, "small") == "And which size?"
        assert env.result(run) == "blue small"


def test_a_def_workflow_asks() -> None:
    with Environment() as env:
        run = env.start(asks_in_thread)
        env.run_until_idle()
        assert answer(env, "blue") == "Which colour?"
        assert env.result(run) == "blue"
        assert [each.event.hook for each in env.history(run) if hasattr(each.event, "hook")] == [
            "ask@colour",
            "ask@colour",
        ]


def test_a_question_that_nobody_answers_in_time_raises() -> None:
    @workflow
    async def impatient() -> str:
        try:
            return str(await ask("Anybody?", timeout="1h"))
        except HookTimeout:
            return "nobody"

    with Environment() as env:
        run = env.start(impatient)
        env.advance("2h")
        assert env.result(run) == "nobody"


def test_outside_a_run_nobody_would_answer() -> None:
    with pytest.raises(UsageError, match="there is no run here"):
        ask("Anybody?")


@pytest.mark.parametrize("question", ["", None, "x" * 2_000])
def test_a_question_is_text(question: Any) -> None:
    with pytest.raises(UsageError, match="question"):
        ask(question)
