"""Hooks of workflows: one decision, told to the right people, never lost and never changed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
from pydantic import BaseModel

from stepwell import (
    STEP_HOOK_TIMEOUT,
    FatalError,
    HookTimeout,
    RetryPolicy,
    StepFailed,
    define_hook,
    hook,
    sleep,
    step,
    step_hook,
    workflow,
)
from stepwell.errors import (
    DefinitionError,
    HookAlreadyDecided,
    HookExpired,
    HookFailed,
    HookNotFound,
    InvalidToken,
    PayloadRejected,
    RunFailed,
    UsageError,
)
from stepwell.testing import Environment
from tests.integration.histories import crashes_of, essence, found, kinds


class Decision(BaseModel):
    approved: bool
    note: str = ""


async def approval(timeout: str | None = None) -> Any:
    return await hook("approve", timeout=timeout)


def test_the_answer_is_what_the_wait_returns(env: Environment) -> None:
    run = env.start(workflow(approval))
    env.run_until_idle()
    [waiting] = env.hooks(run)
    assert (waiting.hook_id, waiting.name, waiting.step) == ("approve:1", "approve", None)
    resumed = env.resume_hook(waiting.token, {"ok": True}, actor="reviewer")
    assert (resumed.run_id, resumed.hook_id, resumed.repeated) == (run.id, "approve:1", False)
    assert env.result(run) == {"ok": True}
    assert [event.actor for event in found(env, run, "HookReceived")] == ["reviewer"]


def test_the_first_decision_wins_and_its_repetition_is_fine(env: Environment) -> None:
    @workflow
    async def flow() -> list[Any]:
        first = await hook("approve")
        await hook("never")
        return [first]

    run = env.start(flow)
    env.run_until_idle()
    [waiting] = env.hooks()
    first = env.resume_hook(waiting.token, {"a": 1, "b": 2})
    again = env.resume_hook(waiting.token, {"b": 2, "a": 1})
    assert (again.decision_id, again.repeated) == (first.decision_id, True)
    with pytest.raises(HookAlreadyDecided):
        env.resume_hook(waiting.token, {"a": 1, "b": 3})
    assert [event.payload for event in found(env, run, "HookReceived")] == ['{"a":1,"b":2}']


def test_of_many_answers_at_once_exactly_one_is_taken(env: Environment) -> None:
    run = env.start(workflow(approval))
    env.run_until_idle()
    [waiting] = env.hooks()

    async def all_at_once() -> list[Any]:
        return await asyncio.gather(
            *(env.client.resume_hook(waiting.token, number) for number in range(5)),
            return_exceptions=True,
        )

    answers = env.wait_for(all_at_once())
    env.run_until_idle()
    taken = [number for number, answer in enumerate(answers) if not isinstance(answer, Exception)]
    assert len(taken) == 1
    assert [type(answer) for answer in answers].count(HookAlreadyDecided) == 4
    assert env.result(run) == taken[0]
    assert len(found(env, run, "HookReceived")) == 1


def test_after_the_deadline_an_answer_is_too_late(env: Environment) -> None:
    run = env.start(workflow(approval), "24h")
    env.run_until_idle()
    [waiting] = env.hooks()
    assert waiting.expires_at == env.clock.now() + 86_400_000
    env.clock.advance(86_400_000)
    with pytest.raises(HookExpired):
        env.resume_hook(waiting.token, "late")
    env.run_until_idle()
    with pytest.raises(RunFailed, match="HookTimeout"):
        env.result(run)
    assert kinds(env, run)[-2:] == ["HookExpired", "RunFailed"]


def test_just_before_the_deadline_an_answer_counts(env: Environment) -> None:
    run = env.start(workflow(approval), "24h")
    env.run_until_idle()
    [waiting] = env.hooks()
    env.advance(86_399.999)
    env.resume_hook(waiting.token, "in time")
    env.advance("1d")
    assert env.result(run) == "in time"


def test_after_the_run_has_ended_an_answer_is_too_late(env: Environment) -> None:
    @workflow
    async def flow() -> str:
        async def ask() -> None:
            await hook("approve")

        task = asyncio.create_task(ask())
        await sleep("1h")
        del task
        return "without it"

    run = env.start(flow)
    env.run_until_idle()
    [waiting] = env.hooks()
    env.advance("1h")
    assert env.result(run) == "without it"
    with pytest.raises(HookExpired):
        env.resume_hook(waiting.token, "late")
    assert env.hooks() == ()


def test_a_cancelled_run_takes_no_answer(env: Environment) -> None:
    run = env.start(workflow(approval))
    env.run_until_idle()
    [waiting] = env.hooks()
    env.cancel(run)
    with pytest.raises(HookExpired):
        env.resume_hook(waiting.token, "late")
    assert kinds(env, run)[-1] == "RunCancelled"


@pytest.mark.parametrize("token", ["", "nonsense", "a:b", "k1.a.b.c", "k1.YQ.YQ.AAAA", "." * 5000])
def test_a_forged_token_is_refused(env: Environment, token: str) -> None:
    with pytest.raises(InvalidToken):
        env.resume_hook(token, 1)


def test_a_token_cannot_be_made_from_what_is_known_of_the_run(env: Environment) -> None:
    env.start(workflow(approval))
    env.run_until_idle()
    [waiting] = env.hooks()
    key, run_part, hook_part, mac = waiting.token.split(".")
    other = "A" if mac[0] != "A" else "B"
    for forged in (
        f"{key}.{run_part}.{hook_part}.{other}{mac[1:]}",
        f"k2.{run_part}.{hook_part}.{mac}",
        f"{key}.{hook_part}.{run_part}.{mac}",
    ):
        with pytest.raises(InvalidToken):
            env.resume_hook(forged, 1)


def test_a_genuine_token_of_no_hook_is_not_found(env: Environment) -> None:
    token = env._settings.keyring.token("k1", "no-run", "approve:1")
    with pytest.raises(HookNotFound):
        env.resume_hook(token, 1)


def test_a_bad_payload_leaves_the_hook_open_for_a_corrected_one(env: Environment) -> None:
    approve = define_hook("approve", Decision)

    @workflow
    async def flow() -> str:
        decision = await approve()
        return f"{type(decision).__name__} {decision.approved} {decision.note}"

    run = env.start(flow)
    env.run_until_idle()
    [waiting] = env.hooks()
    assert waiting.schema is not None
    with pytest.raises(PayloadRejected) as rejected:
        env.resume_hook(waiting.token, {"approved": "perhaps", "note": 5})
    assert sorted(error["pointer"] for error in rejected.value.errors) == ["/approved", "/note"]
    with pytest.raises(PayloadRejected):
        env.resume_hook(waiting.token, {})
    env.resume_hook(waiting.token, {"approved": True, "note": "fine"})
    assert env.result(run) == "Decision True fine"


def test_a_model_is_an_answer_too(env: Environment) -> None:
    @workflow
    async def flow() -> Decision:
        decision: Decision = await hook("approve", payload_schema=Decision)
        return decision

    run = env.start(flow)
    env.run_until_idle()
    [waiting] = env.hooks()
    env.resume_hook(waiting.token, Decision(approved=False, note="no"))
    assert env.result(run) == Decision(approved=False, note="no")


def test_a_deadline_can_raise(env: Environment) -> None:
    @workflow
    async def flow() -> str:
        try:
            await hook("approve", timeout="1h", on_timeout="raise")
        except HookTimeout as timeout:
            await sleep("1h")
            return f"{timeout.hook} {timeout.name}"
        return "answered"

    run = env.start(flow)
    assert env.run_to_end(run) == "approve:1 approve"


def test_a_deadline_can_return_a_mark_that_is_one_on_every_pass(env: Environment) -> None:
    passes: list[bool] = []

    @workflow
    async def flow() -> str:
        answer = await hook("approve", timeout="1h", on_timeout="return")
        passes.append(answer is STEP_HOOK_TIMEOUT)
        await sleep("1h")
        return "nobody came"

    run = env.start(flow)
    assert env.run_to_end(run) == "nobody came"
    assert passes == [True, True]


def test_a_deadline_can_just_inform(env: Environment) -> None:
    @workflow
    async def flow() -> str:
        answer: str = await hook("approve", timeout="1h", on_timeout="wait")
        return answer

    run = env.start(flow)
    env.advance("30d")
    [waiting] = env.hooks()
    assert waiting.expires_at is None
    assert waiting.due_at is not None
    [wait] = env.get(run).waiting
    assert wait.until == waiting.due_at
    env.resume_hook(waiting.token, "late but welcome")
    assert env.result(run) == "late but welcome"


def test_the_mark_is_no_result(env: Environment) -> None:
    @workflow
    async def flow() -> Any:
        return await hook("approve", timeout="1h", on_timeout="return")

    @workflow
    async def nested() -> Any:
        return {"answer": await hook("approve", timeout="1h", on_timeout="return")}

    for each in (flow, nested):
        run = env.start(each)
        with pytest.raises(RunFailed, match="PayloadError"):
            env.run_to_end(run)


def test_a_deadline_outlives_its_process(
    process: Callable[..., AbstractContextManager[Environment]],
) -> None:
    @workflow
    async def flow() -> str:
        answer = await hook("approve", timeout="24h", on_timeout="return")
        return "nobody came" if answer is STEP_HOOK_TIMEOUT else "answered"

    with process() as env:
        run = env.start(flow)
        env.run_until_idle()
    with process() as env:
        env.advance("23h59m")
        assert not env.wait_for(env.client.get(run.id)).status.terminal
        env.advance("1m")
        assert env.wait_for(env.client.result(run.id, timeout=0)) == "nobody came"


@pytest.mark.parametrize(
    "options",
    [
        {"on_timeout": "suspend"},
        {"timeout": 0},
        {"timeout": -5},
        {"timeout": "soon"},
        {"name": "a:b"},
        {"name": ""},
        {"key": ""},
        {"on_created": "not a function"},
    ],
)
def test_a_bad_option_is_refused(env: Environment, options: dict[str, Any]) -> None:
    @workflow
    async def flow() -> None:
        await hook(**{"name": "approve"} | options)

    run = env.start(flow)
    env.run_until_idle()
    with pytest.raises(RunFailed, match="DefinitionError"):
        env.result(run)
    with pytest.raises(DefinitionError):
        define_hook("a:b", Decision)


def test_each_kind_of_hook_says_where_it_belongs(env: Environment) -> None:
    @step
    async def misplaced() -> None:
        await hook("approve")

    @workflow
    async def in_step() -> None:
        await misplaced()

    @workflow
    async def in_workflow() -> None:
        await step_hook("approve")

    for each, advice in ((in_step, "step_hook"), (in_workflow, "write hook")):
        run = env.start(each)
        env.run_until_idle()
        with pytest.raises(RunFailed, match=advice):
            env.result(run)
    with pytest.raises(UsageError):
        hook("approve")
    with pytest.raises(UsageError):
        step_hook("approve")


def test_names_count_in_their_branch_and_a_new_sleep_does_not_shift_them(env: Environment) -> None:
    @workflow
    async def flow() -> list[Any]:
        first = await hook("ask")
        await sleep("1s")
        second = await hook("ask")
        third = await hook("ask", key="third")
        return [first, second, third]

    run = env.start(flow)
    for answer, identity in ((1, "ask:1"), (2, "ask:2"), (3, "ask@third")):
        env.advance("1s")
        [waiting] = env.hooks()
        assert waiting.hook_id == identity
        env.resume_hook(waiting.token, answer)
    assert env.result(run) == [1, 2, 3]


def test_parallel_hooks_of_one_name_get_each_its_own_answer(env: Environment) -> None:
    @workflow
    async def flow() -> list[Any]:
        return list(await asyncio.gather(hook("ask"), hook("ask"), hook("ask", key="c")))

    run = env.start(flow)
    env.run_until_idle()
    waiting = env.hooks()
    assert len({each.token for each in waiting}) == 3
    for each in reversed(waiting):
        env.resume_hook(each.token, each.hook_id)
    assert sorted(env.result(run)) == sorted(each.hook_id for each in waiting)
    assert env.result(run)[2] == "ask@c"


# Telling the outside


def test_on_created_is_called_once_with_the_token(env: Environment) -> None:
    told: list[str] = []

    async def tell(token: str) -> None:
        told.append(token)

    @workflow
    async def flow() -> list[Any]:
        first = await hook("approve", on_created=tell)
        await sleep("1h")
        second = await hook("approve", on_created=told.append)
        return [first, second]

    run = env.start(flow)
    env.run_until_idle()
    [waiting] = env.hooks()
    assert told == [waiting.token]
    env.resume_hook(waiting.token, 1)
    env.advance("1h")
    [waiting] = env.hooks()
    assert told[1:] == [waiting.token]
    env.resume_hook(waiting.token, 2)
    assert env.result(run) == [1, 2]
    assert len(told) == 2


def test_an_answer_that_comes_inside_on_created_is_not_lost(env: Environment) -> None:
    async def answer(token: str) -> None:
        await env.client.resume_hook(token, "fast")

    @workflow
    async def flow() -> str:
        answered: str = await hook("approve", on_created=answer)
        return answered

    assert env.run(flow) == "fast"


def test_a_failing_on_created_is_tried_again_with_the_same_token(env: Environment) -> None:
    told: list[str] = []

    async def tell(token: str) -> None:
        told.append(token)
        if len(told) < 3:
            raise ConnectionError("mail server")

    @workflow
    async def flow() -> str:
        answered: str = await hook("approve", on_created=tell)
        return answered

    run = env.start(flow)
    env.run_until_idle()
    assert kinds(env, run)[-1] == "HookNotifyFailed"
    env.advance("10m")
    [waiting] = env.hooks()
    assert told == [waiting.token] * 3
    env.resume_hook(waiting.token, "yes")
    assert env.result(run) == "yes"


def test_an_answer_counts_even_while_on_created_is_to_be_tried_again(env: Environment) -> None:
    told: list[str] = []

    async def tell(token: str) -> None:
        told.append(token)
        raise ConnectionError("sent, but the reply was lost")

    @workflow
    async def flow() -> str:
        answered: str = await hook("approve", on_created=tell)
        return answered

    run = env.start(flow)
    env.run_until_idle()
    env.resume_hook(told[0], "yes")
    assert env.result(run) == "yes"
    env.advance("1h")
    assert len(told) == 1


def test_an_on_created_that_fails_for_good_fails_the_hook(env: Environment) -> None:
    told: list[str] = []

    async def tell(token: str) -> None:
        told.append(token)
        raise ConnectionError("mail server")

    @workflow
    async def flow() -> str:
        try:
            await hook("approve", on_created=tell)
        except HookFailed as failed:
            await sleep("1h")
            return f"{failed.failure.type}: {failed.failure.message}"
        return "answered"

    run = env.start(flow)
    assert env.run_to_end(run) == "ConnectionError: mail server"
    assert len(told) == 4
    assert len(set(told)) == 1
    with pytest.raises(HookExpired):
        env.resume_hook(told[0], "late")


@pytest.mark.parametrize(
    "error", [FatalError("no address"), SystemExit(1), asyncio.CancelledError()]
)
@pytest.mark.parametrize("colour", ["async", "sync"])
def test_an_error_that_no_retry_mends_fails_the_hook_at_once(
    env: Environment, error: BaseException, colour: str
) -> None:
    told: list[str] = []

    async def tell(token: str) -> None:
        told.append(token)
        raise error

    def tell_plainly(token: str) -> None:
        told.append(token)
        raise error

    @workflow
    async def flow() -> str:
        try:
            await hook("approve", on_created=tell if colour == "async" else tell_plainly)
        except HookFailed as failed:
            return failed.failure.type
        return "answered"

    assert env.run(flow).endswith(type(error).__name__)
    assert len(told) == 1
    with pytest.raises(HookExpired):
        env.resume_hook(told[0], "late")


def test_a_plain_on_created_runs_off_the_loop(env: Environment) -> None:
    threads: list[threading.Thread] = []

    def tell(token: str) -> None:
        threads.append(threading.current_thread())

    @workflow
    async def flow() -> None:
        await hook("approve", on_created=tell)

    run = env.start(flow)
    env.run_until_idle()
    assert threads
    assert threads[0] is not threading.main_thread()
    assert kinds(env, run)[-1] == "HookOpened"


def test_a_crash_anywhere_around_a_hook_repeats_the_notice_only_with_the_same_token() -> None:
    told: list[tuple[str, bool]] = []
    runs: list[Any] = []
    deployment: list[Environment] = []

    async def tell(token: str) -> None:
        history = await deployment[-1].client.history(runs[-1].id)
        noted = any(recorded.event.type == "HookOpened" for recorded in history)
        told.append((token, noted))

    @workflow
    async def flow() -> str:
        answered: str = await hook("approve", timeout="1h", on_created=tell)
        return answered

    def scenario(env: Environment) -> None:
        told.clear()
        deployment.append(env)
        runs.append(env.start(flow))
        env.run_until_idle()
        [waiting] = env.hooks()
        env.resume_hook(waiting.token, "yes")
        env.advance("2h")

    histories = []
    notices = set()
    for env in crashes_of(scenario):
        assert env.result(runs[-1]) == "yes"
        assert len({token for token, _ in told}) == 1
        assert not any(noted for _, noted in told)
        notices.add(len(told))
        histories.append(essence(env, runs[-1]))
    assert notices == {1, 2}
    assert all(history == histories[0] for history in histories)


@pytest.mark.parametrize("place", ["workflow", "step"])
def test_a_crash_anywhere_never_opens_a_hook_on_what_is_then_forgotten(place: str) -> None:
    told: list[str] = []
    made: list[int] = []
    runs: list[Any] = []

    @step
    async def make() -> str:
        made.append(1)
        return f"order-{len(made)}"

    @step
    async def ask(key: str) -> str:
        answer: str = await step_hook("approve", key=key, on_created=told.append)
        return answer

    @workflow
    async def flow() -> str:
        key = await make()
        if place == "step":
            return await ask(key)
        answer: str = await hook("approve", key=key, on_created=told.append)
        return answer

    def scenario(env: Environment) -> None:
        told.clear()
        runs.append(env.start(flow))
        env.run_until_idle()
        [waiting] = env.hooks()
        env.resume_hook(waiting.token, "yes")

    for env in crashes_of(scenario):
        assert env.result(runs[-1]) == "yes"
        assert len(set(told)) == 1


def test_a_crash_anywhere_around_a_deadline_decides_once() -> None:
    runs: list[Any] = []

    @workflow
    async def flow() -> str:
        answer = await hook("approve", timeout="1h", on_timeout="return")
        return "nobody came" if answer is STEP_HOOK_TIMEOUT else "answered"

    def scenario(env: Environment) -> None:
        runs.append(env.start(flow))
        env.advance("2h")

    histories = []
    for env in crashes_of(scenario):
        assert env.result(runs[-1]) == "nobody came"
        histories.append(essence(env, runs[-1]))
    assert all(history == histories[0] for history in histories)


def test_a_def_workflow_waits_by_the_same_identities(env: Environment) -> None:
    @workflow
    def flow() -> list[Any]:
        first = hook("ask")
        second = hook("ask", timeout="1h", on_timeout="return")
        return [first, second is STEP_HOOK_TIMEOUT]

    run = env.start(flow)
    env.run_until_idle()
    [waiting] = env.hooks()
    assert waiting.hook_id == "ask:1"
    env.resume_hook(waiting.token, "yes")
    assert env.run_to_end(run) == ["yes", True]


def test_a_token_that_a_notifier_quotes_in_its_error_is_not_recorded(env: Environment) -> None:
    told: list[str] = []

    def notify(token: str) -> None:
        told.append(token)
        raise ConnectionError(f"cannot post to https://mail.test/{token}") from OSError(token)

    @step(retry=RetryPolicy(max_attempts=1))
    async def asks() -> None:
        await step_hook("in_step", on_created=notify)

    @workflow
    async def flow() -> None:
        try:
            await asks()
        except StepFailed:
            await hook("in_workflow", on_created=notify)

    run = env.start(flow)
    env.run_until_idle()
    recorded = repr(env.history(run)) + repr(env.get(run))
    assert "ConnectionError" in recorded
    assert "<token>" in recorded
    assert len(set(told)) == 2
    assert not any(token in recorded for token in told)
    assert not any(token in repr(each) for token in told for each in env.hooks())


def test_a_hook_that_was_notified_at_the_second_attempt_still_expires(env: Environment) -> None:
    told: list[str] = []

    def notify(token: str) -> None:
        told.append(token)
        if len(told) == 1:
            raise ConnectionError

    @workflow
    async def flow() -> str:
        answer = await hook("question", timeout="1h", on_created=notify, on_timeout="return")
        return "late" if answer is STEP_HOOK_TIMEOUT else "answered"

    run = env.start(flow)
    env.advance("2h")
    assert len(told) == 2
    assert env.result(run) == "late"
