"""Step hooks: a step that suspends in its middle, and gets its own answer and no other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
from pydantic import BaseModel

from stepwell import (
    STEP_HOOK_TIMEOUT,
    FatalError,
    Result,
    RetryPolicy,
    StepFailed,
    current,
    define_hook,
    delete_step_checkpoint,
    load_step_checkpoint,
    save_step_checkpoint,
    sleep,
    step,
    step_hook,
    workflow,
)
from stepwell.errors import HookAlreadyDecided, HookExpired, PayloadRejected, RunFailed
from stepwell.testing import Environment
from tests.integration.histories import crashes_of, essence, found, kinds

ONCE = RetryPolicy(max_attempts=1)
QUICK = RetryPolicy(initial="1m", jitter="none")


class Decision(BaseModel):
    approved: bool


def test_the_documented_example_works_as_written(env: Environment) -> None:
    done: list[str] = []

    async def expensive_setup(draft: str) -> str:
        done.append("setup")
        return draft.upper()

    async def send_to_reviewer(token: str) -> None:
        done.append(f"sent {token}")

    async def finalize(state: str, feedback: Any) -> str:
        return f"{state}: {feedback}"

    async def finalize_without_review(state: str) -> str:
        return f"{state}: not reviewed"

    @step
    async def review_step(draft: str) -> str:
        done.append("entered")
        checkpoint = await load_step_checkpoint()
        if checkpoint is None:
            state = await expensive_setup(draft)
            await save_step_checkpoint({"state": state})
        else:
            state = checkpoint["state"]

        async def notify(token: str) -> None:
            await send_to_reviewer(token)

        feedback = await step_hook(
            "human_review", timeout="24h", on_created=notify, on_timeout="return"
        )
        if feedback is STEP_HOOK_TIMEOUT:
            return await finalize_without_review(state)
        result = await finalize(state, feedback)
        await delete_step_checkpoint()
        return result

    @workflow
    async def flow(draft: str) -> str:
        return await review_step(draft)

    answered = env.start(flow, "one")
    env.run_until_idle()
    [waiting] = env.hooks(answered)
    assert done == ["entered", "setup", f"sent {waiting.token}"]
    assert kinds(env, answered) == ["RunStarted", "HookOpened", "StepSuspended"]
    env.resume_hook(waiting.token, "good")
    assert env.result(answered) == "ONE: good"
    assert done[3:] == ["entered"]

    done.clear()
    ignored = env.start(flow, "two")
    env.advance("23h59m59s")
    assert not env.get(ignored).status.terminal
    env.advance("1s")
    assert env.result(ignored) == "TWO: not reviewed"
    assert [what.split()[0] for what in done] == ["entered", "setup", "sent", "entered"]


def test_a_waiting_step_is_entered_only_when_there_is_something_new(env: Environment) -> None:
    entries: list[int] = []

    @step
    async def ask() -> list[Any]:
        entries.append(current.entry)
        return [await step_hook("q"), await step_hook("q")]

    @workflow
    async def flow() -> list[Any]:
        async def idle() -> None:
            for _ in range(5):
                await sleep("1m")

        answers, _ = await asyncio.gather(ask(), idle())
        return list(answers)

    run = env.start(flow)
    env.advance("1h")
    assert entries == [1]
    for answer in ("first", "second"):
        [waiting] = env.hooks()
        env.resume_hook(waiting.token, answer)
    assert entries == [1, 2, 3]
    assert env.result(run) == ["first", "second"]


def test_steps_in_sequence_get_each_its_own_answer(env: Environment) -> None:
    @step
    async def ask(who: str) -> str:
        return f"{who}: {await step_hook('approval')}"

    @workflow
    async def flow() -> list[str]:
        return [await ask("first"), await ask("second")]

    run = env.start(flow)
    env.run_until_idle()
    [first] = env.hooks()
    env.resume_hook(first.token, "from first")
    [second] = env.hooks()
    assert (first.hook_id, second.hook_id) == ("ask:1>approval:1", "ask:2>approval:1")
    assert first.token != second.token
    env.resume_hook(second.token, "from second")
    assert env.result(run) == ["first: from first", "second: from second"]


def test_parallel_steps_get_each_its_own_answer(env: Environment) -> None:
    @step
    async def ask(who: str) -> str:
        return f"{who}: {await step_hook('approval')}"

    @workflow
    async def flow() -> list[str]:
        return list(await asyncio.gather(ask("one"), ask("two"), ask("three")))

    run = env.start(flow)
    env.run_until_idle()
    waiting = {each.step: each for each in env.hooks()}
    assert len(waiting) == 3
    for identity in ("3/ask:1", "1/ask:1", "2/ask:1"):
        env.resume_hook(waiting[identity].token, identity)
    assert env.result(run) == ["one: 1/ask:1", "two: 2/ask:1", "three: 3/ask:1"]


def test_hooks_in_a_loop_by_key(env: Environment) -> None:
    told: list[str] = []

    @step
    async def ask_all(people: list[str]) -> dict[str, Any]:
        answers = {}
        for person in people:
            answers[person] = await step_hook("approval", key=person, on_created=told.append)
        return answers

    @workflow
    async def flow() -> dict[str, Any]:
        return await ask_all(["legal", "sales", "audit"])

    run = env.start(flow)
    env.run_until_idle()
    for person in ("legal", "sales", "audit"):
        [waiting] = env.hooks()
        assert waiting.hook_id == f"ask_all:1>approval@{person}"
        env.resume_hook(waiting.token, person.upper())
    assert env.result(run) == {"legal": "LEGAL", "sales": "SALES", "audit": "AUDIT"}
    assert len(told) == 3


def test_hooks_in_a_loop_by_occurrence(env: Environment) -> None:
    @step
    async def ask(times: int) -> list[Any]:
        return [await step_hook("q") for _ in range(times)]

    @workflow
    async def flow() -> list[Any]:
        return await ask(3)

    run = env.start(flow)
    env.run_until_idle()
    for number in range(3):
        [waiting] = env.hooks()
        env.resume_hook(waiting.token, number)
    assert env.result(run) == [0, 1, 2]


def test_a_key_used_twice_is_refused(env: Environment) -> None:
    @step
    async def ask() -> list[Any]:
        return [await step_hook("q", key="k"), await step_hook("q", key="k")]

    @workflow
    async def flow() -> list[Any]:
        return await ask()

    run = env.start(flow)
    env.run_until_idle()
    [waiting] = env.hooks()
    env.resume_hook(waiting.token, 1)
    with pytest.raises(RunFailed, match="used twice"):
        env.result(run)


def test_an_occurrence_that_a_checkpoint_makes_ambiguous_is_refused(env: Environment) -> None:
    @step
    async def ask() -> list[Any]:
        answers = await load_step_checkpoint() or []
        while len(answers) < 2:
            answers.append(await step_hook("q"))
            await save_step_checkpoint(answers)
        return list(answers)

    @workflow
    async def flow() -> str:
        try:
            await ask()
        except StepFailed as failed:
            return f"{failed.type} after {failed.attempts}: {failed.message}"
        return "an old answer was taken for a new one"

    run = env.start(flow)
    env.run_until_idle()
    for answer in ("first", "second"):
        for waiting in env.hooks():
            env.resume_hook(waiting.token, answer)
    result = env.result(run)
    assert result.startswith("stepwell.errors.AmbiguousHook after 1: ")
    assert "key=" in result


def test_keys_make_the_same_loop_plain(env: Environment) -> None:
    @step
    async def ask() -> list[Any]:
        answers = await load_step_checkpoint() or []
        while len(answers) < 3:
            answers.append(await step_hook("q", key=str(len(answers))))
            await save_step_checkpoint(answers)
        return list(answers)

    @workflow
    async def flow() -> list[Any]:
        return await ask()

    run = env.start(flow)
    env.run_until_idle()
    for answer in range(3):
        [waiting] = env.hooks()
        env.resume_hook(waiting.token, answer)
    assert env.result(run) == [0, 1, 2]


def test_an_answer_taken_again_before_the_checkpoint_is_loaded_is_not_ambiguous(
    env: Environment,
) -> None:
    @step
    async def ask() -> list[Any]:
        first = await step_hook("q")
        seen = await load_step_checkpoint()
        await save_step_checkpoint([first])
        return [seen, await step_hook("q")]

    @workflow
    async def flow() -> list[Any]:
        return await ask()

    run = env.start(flow)
    env.run_until_idle()
    for answer in ("first", "second"):
        [waiting] = env.hooks()
        env.resume_hook(waiting.token, answer)
    assert env.result(run) == [["first"], "second"]


def test_hooks_that_a_body_gathers_are_all_open_at_once(env: Environment) -> None:
    told: list[str] = []

    async def tell(token: str) -> None:
        await asyncio.sleep(0)
        told.append(token)

    @step
    async def ask() -> list[Any]:
        return list(
            await asyncio.gather(
                step_hook("legal", on_created=tell),
                step_hook("finance", on_created=tell),
                step_hook("legal", on_created=told.append),
            )
        )

    @workflow
    async def flow() -> list[Any]:
        return await ask()

    run = env.start(flow)
    env.run_until_idle()
    waiting = {each.hook_id: each for each in env.hooks(run)}
    assert sorted(waiting) == ["ask:1>finance:1", "ask:1>legal:1", "ask:1>legal:2"]
    env.resume_hook(waiting["ask:1>legal:2"].token, "second")
    env.resume_hook(waiting["ask:1>legal:1"].token, "first")
    env.resume_hook(waiting["ask:1>finance:1"].token, "paid")
    assert env.result(run) == ["first", "paid", "second"]
    assert sorted(told) == sorted(each.token for each in waiting.values())


def test_one_of_gathered_hooks_may_expire(env: Environment) -> None:
    told: list[str] = []

    @step
    async def ask() -> list[Any]:
        legal, finance = await asyncio.gather(
            step_hook("legal", on_created=told.append),
            step_hook("finance", on_created=told.append, timeout="1h", on_timeout="return"),
        )
        return [legal, finance is STEP_HOOK_TIMEOUT]

    @workflow
    async def flow() -> list[Any]:
        return await ask()

    run = env.start(flow)
    env.advance("2h")
    assert [event.hook for event in found(env, run, "HookExpired")] == ["ask:1>finance:1"]
    [legal] = env.hooks()
    env.resume_hook(legal.token, "fine")
    assert env.result(run) == ["fine", True]
    assert len(told) == 2


@pytest.mark.parametrize("colour", ["async", "sync"])
def test_the_error_of_one_gathered_hook_is_not_lost_in_the_wait_for_another(
    env: Environment, colour: str
) -> None:
    told: list[str] = []

    def tell_plainly(token: str) -> None:
        told.append(token)
        if len(told) == 2:
            raise ConnectionError("mail server")

    async def tell(token: str) -> None:
        await asyncio.sleep(0)
        tell_plainly(token)

    on_created: Any = tell if colour == "async" else tell_plainly

    @step(retry=QUICK)
    async def ask() -> list[Any]:
        return list(
            await asyncio.gather(
                *(step_hook("q", key=str(number), on_created=on_created) for number in range(2))
            )
        )

    @workflow
    async def flow() -> list[Any]:
        return await ask()

    run = env.start(flow)
    env.run_until_idle()
    assert len(found(env, run, "StepRetryScheduled")) == 1
    env.advance("1m")
    assert len(told) == 3
    assert len(set(told)) == 2
    for each in env.hooks():
        env.resume_hook(each.token, each.hook_id[-1])
    assert env.result(run) == ["0", "1"]


def test_hooks_in_a_task_group_are_all_open_at_once(env: Environment) -> None:
    @step
    async def ask() -> list[Any]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_wait(number)) for number in range(3)]
        return [task.result() for task in tasks]

    async def _wait(number: int) -> Any:
        return await step_hook("q", key=str(number))

    @workflow
    async def flow() -> list[Any]:
        return await ask()

    run = env.start(flow)
    env.run_until_idle()
    waiting = env.hooks()
    assert len(waiting) == 3
    for each in reversed(waiting):
        env.resume_hook(each.token, each.hook_id[-1])
    assert env.result(run) == ["0", "1", "2"]


def test_a_def_step_waits_in_its_middle_too(env: Environment) -> None:
    entered: list[int] = []

    @step
    def ask() -> list[Any]:
        entered.append(current.entry)
        checkpoint = load_step_checkpoint()
        if checkpoint is None:
            save_step_checkpoint("kept")
        first = step_hook("q", on_created=lambda token: entered.append(0))
        second = step_hook("q", timeout="1h", on_timeout="return")
        return [checkpoint, first, second is STEP_HOOK_TIMEOUT]

    @workflow
    async def flow() -> list[Any]:
        return await ask.aio()

    run = env.start(flow)
    env.run_until_idle()
    [waiting] = env.hooks()
    env.resume_hook(waiting.token, "yes")
    assert env.run_to_end(run) == ["kept", "yes", True]
    assert entered == [1, 0, 2, 3]


# The suspension is swallowed


def test_a_middleware_that_rewrites_errors_does_not_see_the_suspension(env: Environment) -> None:
    seen: list[str] = []

    async def forgiving(tool: Callable[[], Any]) -> Any:
        try:
            return await tool()
        except Exception as error:
            seen.append(type(error).__name__)
            return "tool failed"

    @step
    async def agent() -> Any:
        return await forgiving(lambda: step_hook("human"))

    @workflow
    async def flow() -> Any:
        return await agent()

    run = env.start(flow)
    env.run_until_idle()
    [waiting] = env.hooks()
    env.resume_hook(waiting.token, "fine")
    assert env.result(run) == "fine"
    assert seen == []


def test_a_bare_except_suspends_all_the_same_and_what_follows_is_dropped(
    env: Environment,
) -> None:
    after: list[str] = []

    async def swallowing(tool: Any) -> Any:
        try:
            return await tool
        except BaseException:
            return "swallowed"

    @step
    async def agent() -> Any:
        answer = await swallowing(step_hook("human"))
        if answer == "swallowed":
            for name, act in (
                ("save", lambda: save_step_checkpoint("late")),
                ("load", load_step_checkpoint),
                ("delete", delete_step_checkpoint),
                ("hook", lambda: step_hook("other")),
            ):
                after.append(f"{name} {await swallowing(act())}")
        return answer

    @workflow
    async def flow() -> Any:
        return await agent()

    run = env.start(flow)
    env.run_until_idle()
    assert kinds(env, run)[-1] == "StepSuspended"
    assert after == [f"{name} swallowed" for name in ("save", "load", "delete", "hook")]
    [waiting] = env.hooks()
    env.resume_hook(waiting.token, "the answer")
    assert env.result(run) == "the answer"


def test_a_body_that_turns_the_suspension_into_an_error_is_suspended(env: Environment) -> None:
    @step(retry=ONCE)
    async def agent() -> Any:
        try:
            return await step_hook("human")
        except BaseException as error:
            raise ValueError("rewritten") from error

    @workflow
    async def flow() -> Any:
        return await agent()

    run = env.start(flow)
    env.run_until_idle()
    [waiting] = env.hooks()
    env.resume_hook(waiting.token, 1)
    assert env.result(run) == 1


def test_a_body_that_goes_on_for_ever_after_its_suspension_is_left_behind(
    env: Environment,
) -> None:
    gate = asyncio.Event()

    @step
    async def agent() -> Any:
        try:
            return await step_hook("human")
        except BaseException:
            while not gate.is_set():
                try:
                    await gate.wait()
                except BaseException:
                    continue

    @workflow
    async def flow() -> Any:
        return await agent()

    run = env.start(flow)
    env.run_until_idle()
    [waiting] = env.hooks()
    env.resume_hook(waiting.token, 1)
    assert env.result(run) == 1
    env.wait_for(_open(gate))


async def _open(gate: asyncio.Event) -> None:
    gate.set()
    await asyncio.sleep(0)


def test_chunks_after_a_swallowed_suspension_are_not_stored(env: Environment) -> None:
    @step(stream=True)
    async def agent() -> AsyncIterator[str | Result[Any]]:
        yield "before"
        try:
            answer = await step_hook("human")
        except BaseException:
            yield "after the suspension"
            answer = "swallowed"
        yield f"answer {answer}"
        yield Result(answer)

    @workflow
    async def flow() -> Any:
        return await agent()

    run = env.start(flow)
    env.run_until_idle()
    assert [chunk.value for chunk in env.output(run, "agent:1")] == ["before"]
    [waiting] = env.hooks()
    env.resume_hook(waiting.token, "yes")
    assert env.result(run) == "yes"
    assert [chunk.value for chunk in env.output(run, "agent:1")] == ["before", "answer yes"]


# Deadlines


def test_the_mark_is_one_on_every_pass_and_is_no_result(env: Environment) -> None:
    passes: list[bool] = []

    @step(retry=QUICK)
    async def ask() -> str:
        answer = await step_hook("q", timeout="1h", on_timeout="return")
        passes.append(answer is STEP_HOOK_TIMEOUT)
        if current.attempt < 3:
            raise ConnectionError
        return "nobody came"

    @step
    async def leak() -> Any:
        return await step_hook("q", timeout="1h", on_timeout="return")

    @workflow
    async def flow() -> str:
        first = await ask()
        try:
            await leak()
        except StepFailed as failed:
            return f"{first}; {failed.attempts} {failed.type} {failed.message}"
        return "leaked"

    run = env.start(flow)
    told = env.run_to_end(run)
    assert told.startswith("nobody came; 1 stepwell.errors.PayloadError ")
    assert "is a mark, not a value" in told
    assert passes == [True, True, True]
    assert len(found(env, run, "HookExpired")) == 2


def test_a_deadline_can_raise_and_is_not_tried_again(env: Environment) -> None:
    entries: list[int] = []

    @step
    async def ask() -> str:
        entries.append(current.entry)
        answer: str = await step_hook("q", timeout="1h")
        return answer

    @step
    async def catch() -> str:
        try:
            answer: str = await step_hook("q", timeout="1h", on_timeout="raise")
        except Exception as error:
            return type(error).__name__
        return answer

    @workflow
    async def flow() -> list[Any]:
        caught = await catch()
        try:
            await ask()
        except StepFailed as failed:
            return [caught, failed.type, failed.attempts]
        return []

    run = env.start(flow)
    assert env.run_to_end(run) == ["HookTimeout", "stepwell.errors.HookTimeout", 1]
    assert entries == [1, 2]


def test_a_deadline_can_just_inform(env: Environment) -> None:
    @step
    async def ask() -> str:
        answer: str = await step_hook("q", timeout="1h", on_timeout="wait")
        return answer

    @workflow
    async def flow() -> str:
        return await ask()

    run = env.start(flow)
    env.advance("30d")
    [waiting] = env.hooks()
    env.resume_hook(waiting.token, "late but welcome")
    assert env.result(run) == "late but welcome"


def test_many_runs_all_wake_at_their_deadline(env: Environment) -> None:
    @step
    async def ask(seconds: int) -> int:
        answer = await step_hook("q", timeout=seconds, on_timeout="return")
        assert answer is STEP_HOOK_TIMEOUT
        return current.entry

    @workflow
    async def flow(seconds: int) -> int:
        return await ask(seconds)

    runs = [env.start(flow, 2 + number % 7) for number in range(18)]
    env.advance("8s")
    assert [env.result(run) for run in runs] == [2] * 18
    for run in runs:
        [opened], [expired] = found(env, run, "HookOpened"), found(env, run, "HookExpired")
        assert expired.at == opened.expires_at


def test_an_answer_after_the_deadline_is_too_late(env: Environment) -> None:
    @step
    async def ask() -> bool:
        return await step_hook("q", timeout="1h", on_timeout="return") is STEP_HOOK_TIMEOUT

    @workflow
    async def flow() -> bool:
        return await ask()

    run = env.start(flow)
    env.run_until_idle()
    [waiting] = env.hooks()
    env.clock.advance(3_600_000)
    with pytest.raises(HookExpired):
        env.resume_hook(waiting.token, "late")
    env.run_until_idle()
    assert env.result(run) is True


# Answers


def test_the_first_decision_wins(env: Environment) -> None:
    @step
    async def ask() -> list[Any]:
        return [await step_hook("q"), await step_hook("other")]

    @workflow
    async def flow() -> list[Any]:
        return await ask()

    env.start(flow)
    env.run_until_idle()
    [waiting] = env.hooks()
    env.resume_hook(waiting.token, 1)
    assert env.resume_hook(waiting.token, 1).repeated
    with pytest.raises(HookAlreadyDecided):
        env.resume_hook(waiting.token, 2)


def test_a_bad_payload_leaves_the_hook_open(env: Environment) -> None:
    approval = define_hook("approval", Decision)

    @step
    async def ask() -> bool:
        first = await step_hook("plain", payload_schema=Decision)
        second = await approval()
        return bool(first.approved and second.approved)

    @workflow
    async def flow() -> bool:
        return await ask()

    run = env.start(flow)
    env.run_until_idle()
    for _ in range(2):
        [waiting] = env.hooks()
        for bad in ({}, {"approved": 3}, "yes", None):
            with pytest.raises(PayloadRejected):
                env.resume_hook(waiting.token, bad)
        env.resume_hook(waiting.token, {"approved": True})
    assert env.result(run) is True


def test_a_retry_reads_the_answer_again_and_asks_nobody(env: Environment) -> None:
    told: list[str] = []

    @step(retry=QUICK)
    async def ask() -> str:
        answer: str = await step_hook("q", on_created=told.append)
        if current.attempt == 1:
            raise ConnectionError
        return answer

    @workflow
    async def flow() -> str:
        return await ask()

    run = env.start(flow)
    env.run_until_idle()
    [waiting] = env.hooks()
    env.resume_hook(waiting.token, "yes")
    assert env.run_to_end(run) == "yes"
    assert len(told) == 1


# Telling the outside


def test_a_failing_on_created_is_tried_again_by_the_policy_of_the_step(env: Environment) -> None:
    told: list[str] = []

    async def tell(token: str) -> None:
        told.append(token)
        if len(told) < 3:
            raise ConnectionError("mail server")

    @step(retry=QUICK)
    async def ask() -> str:
        answer: str = await step_hook("q", on_created=tell)
        return answer

    @workflow
    async def flow() -> str:
        return await ask()

    run = env.start(flow)
    env.advance("1h")
    [waiting] = env.hooks()
    assert told == [waiting.token] * 3
    assert len(found(env, run, "StepRetryScheduled")) == 2
    env.resume_hook(waiting.token, "yes")
    assert env.result(run) == "yes"


@pytest.mark.parametrize(("error", "tries"), [(ConnectionError("x"), 4), (FatalError("x"), 1)])
def test_an_on_created_that_fails_for_good_fails_the_step_and_closes_the_hook(
    env: Environment, error: Exception, tries: int
) -> None:
    told: list[str] = []

    async def tell(token: str) -> None:
        told.append(token)
        raise error

    @step(retry=QUICK)
    async def ask() -> None:
        await step_hook("q", on_created=tell)

    @workflow
    async def flow() -> str:
        try:
            await ask()
        except StepFailed as failed:
            await sleep("1h")
            return f"{failed.type} {failed.attempts}"
        return "answered"

    run = env.start(flow)
    env.advance("10m")
    assert told == [told[0]] * tries
    assert env.hooks() == ()
    with pytest.raises(HookExpired):
        env.resume_hook(told[0], "late")
    assert env.run_to_end(run).split()[1] == str(tries)
    assert len(found(env, run, "HookClosed")) == 1


def test_an_answer_that_comes_inside_on_created_is_not_lost(env: Environment) -> None:
    entries: list[int] = []

    async def answer(token: str) -> None:
        await env.client.resume_hook(token, "fast")

    @step
    async def ask() -> str:
        entries.append(current.entry)
        answered: str = await step_hook("q", on_created=answer)
        return answered

    @workflow
    async def flow() -> str:
        return await ask()

    assert env.run(flow) == "fast"
    assert entries == [1, 2]


def test_on_created_knows_the_step_it_speaks_for(env: Environment) -> None:
    keys: list[str] = []

    def tell_plainly(token: str) -> None:
        keys.append(current.idempotency_key)

    async def tell(token: str) -> None:
        keys.append(current.idempotency_key)

    @step
    async def ask() -> None:
        await asyncio.gather(
            step_hook("a", on_created=tell_plainly), step_hook("b", on_created=tell)
        )

    @workflow
    async def flow() -> None:
        await ask()

    run = env.start(flow)
    env.run_until_idle()
    assert keys == [f"{run.id}/ask:1"] * 2


def test_a_crash_anywhere_repeats_the_notice_only_with_the_same_token() -> None:
    told: list[tuple[str, bool]] = []
    runs: list[Any] = []
    deployment: list[Environment] = []

    async def tell(token: str) -> None:
        history = await deployment[-1].client.history(runs[-1].id)
        noted = any(recorded.event.type == "HookOpened" for recorded in history)
        told.append((token, noted))

    @step
    async def ask() -> str:
        checkpoint = await load_step_checkpoint()
        if checkpoint is None:
            checkpoint = "kept"
            await save_step_checkpoint(checkpoint)
        answer = await step_hook("q", timeout="24h", on_created=tell)
        await delete_step_checkpoint()
        return f"{checkpoint} {answer}"

    @workflow
    async def flow() -> str:
        return await ask()

    def scenario(env: Environment) -> None:
        told.clear()
        deployment.append(env)
        runs.append(env.start(flow))
        env.run_until_idle()
        [waiting] = env.hooks()
        env.resume_hook(waiting.token, "yes")
        env.advance("2d")

    histories = []
    notices = set()
    for env in crashes_of(scenario):
        assert env.result(runs[-1]) == "kept yes"
        assert len({token for token, _ in told}) == 1
        assert not any(noted for _, noted in told)
        notices.add(len(told))
        histories.append(essence(env, runs[-1]))
    assert notices == {1, 2}
    assert all(history == histories[0] for history in histories)


def test_a_step_that_is_not_waited_for_closes_its_hooks(env: Environment) -> None:
    @step
    async def ask() -> None:
        await step_hook("q")

    @workflow
    async def flow() -> str:
        try:
            async with asyncio.timeout(60):
                await ask()
        except TimeoutError:
            await sleep("1h")
            return "went on"
        return "answered"

    run = env.start(flow)
    env.run_until_idle()
    [waiting] = env.hooks()
    env.advance("2m")
    assert env.hooks() == ()
    with pytest.raises(HookExpired):
        env.resume_hook(waiting.token, "late")
    assert env.run_to_end(run) == "went on"


def test_a_waiting_step_outlives_its_process(
    process: Callable[..., AbstractContextManager[Environment]],
) -> None:
    done: list[str] = []

    @step
    async def ask() -> str:
        checkpoint = await load_step_checkpoint()
        if checkpoint is None:
            done.append("setup")
            checkpoint = "state"
            await save_step_checkpoint(checkpoint)
        answer = await step_hook("q", timeout="24h", on_created=done.append)
        return f"{checkpoint} {answer}"

    @workflow
    async def flow() -> str:
        return await ask()

    with process() as env:
        run = env.start(flow)
        env.run_until_idle()
    with process() as env:
        env.advance("23h")
        [waiting] = env.hooks()
        assert done == ["setup", waiting.token]
        env.resume_hook(waiting.token, "yes")
        assert env.wait_for(env.client.result(run.id, timeout=0)) == "state yes"
    assert len(done) == 2
