"""Guards: asked before a step and after it, and what each of their answers comes to."""

from __future__ import annotations

import asyncio
import datetime as dt
import threading
from collections.abc import Callable
from typing import Any

import pytest

from stepwell import (
    DefinitionError,
    RunFailed,
    StepBlocked,
    Suspend,
    UsageError,
    continue_as_new,
    current,
    start_child,
    step,
    step_guard,
    step_hook,
    workflow,
)
from stepwell.authoring.guards import guard_change
from stepwell.client import RunHandle
from stepwell.core import events as e
from stepwell.core.records import GuardChange, Guards, RunStatus
from stepwell.testing import Environment

Answer = dict[str, Any]
OBSERVE: Answer = {"power": "observe"}


@step
async def priced(item: str, amount: int = 1, *, note: str = "") -> str:
    return f"{item} x{amount}{note}"


@step
def priced_in_thread(item: str) -> str:
    return f"{item} in a thread"


@step(dispatch="worker")
async def priced_elsewhere(item: str) -> str:
    return f"{item} elsewhere"


@workflow
async def pricing() -> str:
    return await priced("tea", 2, note="!")


@workflow
def pricing_in_thread() -> str:
    return priced_in_thread("tea")


@workflow
async def pricing_elsewhere() -> str:
    return await priced_elsewhere("tea")


class Asked:
    """A guard that gives its answers one after the other, the last one for ever."""

    def __init__(self, *answers: Any) -> None:
        self.payloads: list[Any] = []
        self._answers = list(answers)

    def __call__(self, payload: dict[str, Any]) -> Any:
        self.payloads.append(payload)
        answer = self._answers[0] if len(self._answers) == 1 else self._answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer


def start(
    env: Environment, flow: Any, before: Any = (), after: Any = (), nonce: str = "n"
) -> RunHandle[Any]:
    given = guard_change(before, after, nonce)
    assert given is not None
    run: RunHandle[Any] = env.wait_for(env.client.with_guards(given.guards).start(flow))
    env.run_until_idle()
    return run


def failure(env: Environment, run: RunHandle[Any]) -> Any:
    error = env.get(run).error
    assert error is not None
    return error.cause


FLOWS = pytest.mark.parametrize(
    ("flow", "plain"),
    [
        (pricing, "tea x2!"),
        (pricing_in_thread, "tea in a thread"),
        (pricing_elsewhere, "tea elsewhere"),
    ],
)


@FLOWS
def test_a_guard_that_observes_is_told_of_the_step_and_changes_nothing(
    flow: Any, plain: str
) -> None:
    guard = Asked(OBSERVE)
    with Environment() as env:
        run = start(env, flow, guard)
        assert env.result(run) == plain
    [payload] = guard.payloads
    name = f"{flow.definition.name.replace('pricing', 'priced')}"
    assert payload["type"] == "pre_step"
    assert (payload["run_id"], payload["workflow"]) == (run.id, flow.definition.name)
    assert (payload["step"], payload["key"]) == (name, f"{name}:1")
    assert (payload["attempt"], payload["entry"], payload["inbox"]) == (1, 1, {})
    assert payload["args"][0] == "tea"


def test_a_guard_is_told_the_arguments_as_they_were_given() -> None:
    guard = Asked(OBSERVE)
    with Environment() as env:
        start(env, pricing, guard)
    [payload] = guard.payloads
    assert (payload["args"], payload["kwargs"]) == (["tea", 2], {"note": "!"})


def test_each_guard_gets_a_copy_of_its_own() -> None:
    def spoils(payload: dict[str, Any]) -> Answer:
        payload["args"][0] = "coffee"
        payload["inbox"]["a"] = 1
        return OBSERVE

    last = Asked(OBSERVE)
    with Environment() as env:
        run = start(env, pricing, [spoils, last])
        assert env.result(run) == "tea x2!"
    assert last.payloads[0]["args"] == ["tea", 2]


@FLOWS
def test_a_mutation_is_what_the_body_and_later_guards_get(flow: Any, plain: str) -> None:
    last = Asked(OBSERVE)
    with Environment() as env:
        run = start(env, flow, [Asked({"power": "mutate", "args": ["coffee"]}), last])
        assert env.result(run) == plain.replace("tea", "coffee").replace("x2", "x1")
        plainly = start(env, flow)
        digests = [
            each.event.digest
            for handle in (run, plainly)
            for each in env.history(handle)
            if isinstance(each.event, e.StepCompleted)
        ]
    assert digests[0] == digests[1], "what the step is known by is what the workflow gave it"
    assert last.payloads[0]["args"] == ["coffee"]


def test_what_a_mutation_leaves_out_is_unchanged() -> None:
    with Environment() as env:
        run = start(env, pricing, Asked({"power": "mutate", "kwargs": {"note": "?"}}))
        assert env.result(run) == "tea x2?"


@FLOWS
def test_a_block_fails_the_step_and_its_body_does_not_run(flow: Any, plain: str) -> None:
    with Environment() as env:
        run = start(env, flow, Asked({"power": "block", "reason": "too dear"}))
        cause = failure(env, run)
        assert (cause.type, cause.message) == ("stepwell.errors.StepBlocked", "too dear")
        [failed] = [x.event for x in env.history(run) if isinstance(x.event, e.StepFailed)]
        assert (failed.reason, failed.attempt) == ("guard", 1)


def test_a_workflow_can_catch_what_a_guard_blocks() -> None:
    @workflow
    async def catching() -> str:
        try:
            return await priced("tea")
        except StepBlocked as blocked:
            return f"blocked: {blocked.message}"

    with Environment() as env:
        run = start(env, catching, Asked({"power": "block", "reason": "too dear"}))
        assert env.result(run) == "blocked: too dear"


@FLOWS
def test_a_replacement_is_the_result_and_later_guards_are_skipped(flow: Any, plain: str) -> None:
    last = Asked(OBSERVE)
    with Environment() as env:
        run = start(env, flow, [Asked({"power": "replace", "result": "free"}), last])
        assert env.result(run) == "free"
        [done] = [x.event for x in env.history(run) if isinstance(x.event, e.StepCompleted)]
        assert (done.guard or "").startswith("local:")
    assert last.payloads == []


def test_null_is_a_replacement_too() -> None:
    @step
    async def maybe() -> str | None:
        return "body"

    @workflow
    async def maybe_flow() -> str | None:
        return await maybe()

    with Environment() as env:
        assert (
            env.result(start(env, maybe_flow, Asked({"power": "replace", "result": None}))) is None
        )


@pytest.mark.parametrize("result", [3, {"a": 1}, {1, 2}, float("nan")])
def test_a_replacement_that_does_not_fit_fails_the_step(result: Any) -> None:
    with Environment() as env:
        run = start(env, pricing, Asked({"power": "replace", "result": result}))
        assert failure(env, run).type == "stepwell.errors.PayloadError"


@FLOWS
def test_a_guard_may_suspend_the_run_and_is_asked_again(flow: Any, plain: str) -> None:
    guard = Asked({"power": "suspend", "reason": "who says so?"}, OBSERVE)
    with Environment() as env:
        run = start(env, flow, guard)
        assert [wait.reason for wait in env.get(run).waiting] == ["who says so?"]
        env.wait_for(env.client.put_inbox(run.id, "who", "Ada"))
        env.run_until_idle()
        assert env.result(run) == plain
    assert [payload["entry"] for payload in guard.payloads] == [1, 2]
    assert guard.payloads[1]["inbox"] == {"who": "Ada"}


def test_a_guard_that_raises_suspend_suspends_the_run() -> None:
    with Environment() as env:
        run = start(env, pricing, Asked(Suspend("who says so?"), OBSERVE))
        assert [wait.reason for wait in env.get(run).waiting] == ["who says so?"]
        env.wait_for(env.client.resume(run.id))
        env.run_until_idle()
        assert env.result(run) == "tea x2!"


WRONG: list[tuple[Any, str]] = [
    (None, "an answer is an object"),
    ("observe", "an answer is an object"),
    ({}, "power None"),
    ({"power": "rule"}, "power 'rule'"),
    ({"power": "block"}, "no reason"),
    ({"power": "block", "reason": ""}, "no reason"),
    ({"power": "suspend", "reason": 3}, "no reason"),
    ({"power": "suspend", "reason": "x" * 2000}, "at most"),
    ({"power": "replace"}, "no result"),
    ({"power": "mutate", "args": "tea"}, "args is a list"),
    ({"power": "mutate", "kwargs": []}, "kwargs an object"),
    ({"power": "mutate", "args": [1, "two"]}, "do not fit"),
    ({"power": "mutate", "args": [{1}]}, "do not fit"),
    ({"power": "mutate", "kwargs": {"unknown": 1}}, "do not fit"),
    (RuntimeError("boom"), "RuntimeError: boom"),
    (SystemExit(3), "SystemExit"),
    (ValueError(), "failed: ValueError"),
    (asyncio.CancelledError(), "failed: asyncio.exceptions.CancelledError"),
    (TimeoutError("its own"), "failed: TimeoutError: its own"),
]


@pytest.mark.parametrize(("answer", "told"), WRONG)
def test_whatever_goes_wrong_with_a_guard_the_body_does_not_run(answer: Any, told: str) -> None:
    ran = []

    @step
    async def bare(item: str) -> str:
        ran.append(item)
        return item

    @workflow
    async def bare_flow() -> str:
        return await bare("tea")

    with Environment() as env:
        run = start(env, bare_flow, Asked(answer))
        cause = failure(env, run)
        assert cause.type == "stepwell.errors.StepBlocked"
        assert told in cause.message
        assert [type(x.event) for x in env.history(run)].count(e.StepRetryScheduled) == 0
    assert ran == []


def test_fields_that_nobody_knows_are_ignored() -> None:
    with Environment() as env:
        assert env.result(start(env, pricing, Asked({**OBSERVE, "mood": "good"}))) == "tea x2!"


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_guards_that_take_too_long_fail_the_step(colour: str) -> None:
    release = threading.Event()

    async def slow(_: dict[str, Any]) -> Answer:
        await asyncio.Event().wait()
        return OBSERVE

    def slow_in_thread(_: dict[str, Any]) -> Answer:
        release.wait(5)
        return OBSERVE

    with Environment(guard_time=30) as env:
        run = start(env, pricing, slow if colour == "async" else slow_in_thread)
        release.set()
        assert "took longer than 0.03 s" in failure(env, run).message


def test_an_async_guard_is_awaited() -> None:
    async def slow(payload: dict[str, Any]) -> Answer:
        await asyncio.sleep(0)
        assert current.step_id == payload["key"]
        return {"power": "replace", "result": "awaited"}

    with Environment() as env:
        assert env.result(start(env, pricing, slow)) == "awaited"


def test_a_recorded_step_asks_no_guard_again() -> None:
    guard = Asked(OBSERVE)

    @workflow
    async def two_steps() -> list[str]:
        first = await priced("tea")
        if "go" not in current.run.inbox:
            raise Suspend("go on?")
        return [first, await priced("coffee")]

    with Environment() as env:
        run = start(env, two_steps, guard)
        env.wait_for(env.client.put_inbox(run.id, "go", True))
        env.run_until_idle()
        assert env.result(run) == ["tea x1", "coffee x1"]
    assert [payload["key"] for payload in guard.payloads] == ["priced:1", "priced:2"]


def test_the_time_of_a_step_begins_when_its_guards_have_let_it_pass() -> None:
    @step(timeout="50ms")
    async def quick() -> str:
        return "in time"

    @workflow
    async def quick_flow() -> str:
        return await quick()

    async def slow(_: dict[str, Any]) -> Answer:
        await asyncio.sleep(0.1)
        return OBSERVE

    with Environment() as env:
        assert env.result(start(env, quick_flow, slow)) == "in time"


def test_a_step_with_guards_still_ends_within_its_time() -> None:
    @step(timeout="20ms")
    async def endless() -> None:
        await asyncio.Event().wait()

    @workflow
    async def endless_flow() -> None:
        await endless()

    with Environment() as env:
        run = start(env, endless_flow, Asked(OBSERVE))
        with pytest.raises(RunFailed, match="StepTimeout"):
            env.run_to_end(run)


def test_a_step_with_guards_may_wait_for_a_hook() -> None:
    @step
    async def asks_inside(item: str) -> str:
        return f"{item} {await step_hook('verdict')}"

    @workflow
    async def asking_inside() -> str:
        return await asks_inside("tea")

    guard = Asked(OBSERVE)
    with Environment() as env:
        run = start(env, asking_inside, guard)
        [hook] = env.hooks(run)
        env.resume_hook(hook.token, "good")
        assert env.result(run) == "tea good"
    assert [payload["entry"] for payload in guard.payloads] == [1, 2]


def test_arguments_are_carried_by_their_types() -> None:
    @step
    async def dated(day: dt.date, *more: int, **named: float) -> str:
        return f"{day.year} {sum(more)} {sorted(named)}"

    @workflow
    async def dating() -> str:
        return await dated(dt.date(2030, 1, 2), 1, 2, x=1.5)

    guard = Asked(OBSERVE, {"power": "mutate", "args": ["2031-01-01", 5], "kwargs": {"y": 2}})
    with Environment() as env:
        assert env.result(start(env, dating, guard)) == "2030 3 ['x']"
        assert guard.payloads[0]["args"] == ["2030-01-02", 1, 2]
        assert guard.payloads[0]["kwargs"] == {"x": 1.5}
        assert env.result(start(env, dating, guard)) == "2031 5 ['y']"


# After the step


@FLOWS
def test_a_guard_after_the_step_is_told_its_result(flow: Any, plain: str) -> None:
    guard = Asked(OBSERVE)
    with Environment() as env:
        assert env.result(start(env, flow, after=guard)) == plain
    [payload] = guard.payloads
    assert (payload["type"], payload["result"]) == ("post_step", plain)


@FLOWS
def test_a_guard_after_the_step_may_replace_its_result(flow: Any, plain: str) -> None:
    last = Asked(OBSERVE)
    with Environment() as env:
        run = start(env, flow, after=[Asked({"power": "replace", "result": "else"}), last])
        assert env.result(run) == "else"
    assert last.payloads[0]["result"] == "else"


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ({"power": "block", "reason": "not good"}, "not good"),
        ({"power": "mutate", "args": []}, "no power to mutate"),
        ({"power": "suspend", "reason": "hm"}, "no power to suspend"),
        (None, "an answer is an object"),
        (RuntimeError("boom"), "boom"),
        (asyncio.CancelledError(), "CancelledError"),
        (Suspend("made before"), "Suspend: made before"),
    ],
)
def test_a_result_that_a_guard_does_not_pass_does_not_count(answer: Any, told: str) -> None:
    with Environment() as env:
        run = start(env, pricing, after=Asked(answer))
        assert told in failure(env, run).message
        assert not [x for x in env.history(run) if isinstance(x.event, e.StepCompleted)]


def test_a_guard_after_the_step_cannot_suspend_it_for_the_body_would_run_once_more() -> None:
    def wait(_: dict[str, Any]) -> Answer:
        raise Suspend("made in the guard")

    with Environment() as env:
        run = start(env, pricing, after=wait)
        assert "Suspend: made in the guard" in failure(env, run).message
        assert env.get(run).status is RunStatus.FAILED


# Names


@pytest.fixture
def audited() -> Callable[..., Any]:
    @step_guard(name="audit")
    def audit(payload: dict[str, Any]) -> Answer:
        return {"power": "replace", "result": "audited"}

    return audit


def test_a_run_keeps_its_guards_by_name(audited: Any) -> None:
    with Environment() as env:
        client = env.client.with_options(prepare_step=[audited])
        run = env.wait_for(client.start(pricing))
        env.run_until_idle()
        assert env.result(run) == "audited"
        started = env.history(run)[0].event
        assert isinstance(started, e.RunStarted)
        assert started.guards is not None
        assert started.guards.before == ("audit",)
        [done] = [x.event for x in env.history(run) if isinstance(x.event, e.StepCompleted)]
        assert done.guard == "audit"


def test_a_declared_guard_is_a_function_still(audited: Any) -> None:
    assert audited({})["result"] == "audited"
    assert "audit" in repr(audited)


def test_a_plain_function_is_refused_where_another_process_may_go_on() -> None:
    with Environment() as env:
        with pytest.raises(UsageError, match="@step_guard"):
            env.client.with_options(prepare_step=[Asked(OBSERVE)])
        run = env.start(pricing)
        with pytest.raises(UsageError, match="@step_guard"):
            env.wait_for(env.client.resume(run.id, prepare_step=Asked(OBSERVE)))


@pytest.mark.parametrize("item", [3, None, str, "audit"])
def test_what_is_no_function_is_no_guard(item: Any) -> None:
    with Environment() as env, pytest.raises(TypeError, match="a guard is a function"):
        env.client.with_options(prepare_step=[item])


@FLOWS
def test_a_guard_that_nobody_knows_blocks_the_run_until_it_has_others(
    flow: Any, plain: str
) -> None:
    with Environment() as env:
        guards = Guards(before=("nobody",))
        run = env.wait_for(env.client.with_guards(guards).start(flow))
        env.run_until_idle()
        note = env.get(run).attention
        assert note is not None
        assert note.kind == "BLOCKED"
        assert "'nobody' is not known here" in note.reason
        assert [x.event.type for x in env.history(run)] == ["RunStarted"]
        env.wait_for(env.client.resume(run.id, prepare_step=[]))
        env.run_until_idle()
        assert env.result(run) == plain
        assert env.get(run).attention is None


def test_a_guard_of_another_process_is_said_to_be_one() -> None:
    with Environment() as env:
        guards = Guards(after=("local:notify#elsewhere-0",))
        run = env.wait_for(env.client.with_guards(guards).start(pricing))
        env.run_until_idle()
        note = env.get(run).attention
        assert note is not None
        assert "function of the process" in note.reason


def test_a_resume_without_guards_keeps_those_that_the_run_has(audited: Any) -> None:
    with Environment() as env:
        run = start(env, pricing, Asked({"power": "suspend", "reason": "hm"}))
        env.wait_for(env.client.resume(run.id))
        env.run_until_idle()
        assert env.get(run).status is RunStatus.SUSPENDED
        env.wait_for(env.client.resume(run.id, prepare_step=audited, actor="Ada"))
        env.run_until_idle()
        assert env.result(run) == "audited"
        [replaced] = [x.event for x in env.history(run) if isinstance(x.event, e.GuardsReplaced)]
        assert replaced.actor == "Ada"


@pytest.mark.parametrize("ended", [False, True], ids=["resume", "retry"])
def test_guards_of_the_other_side_stay_when_one_side_is_replaced(ended: bool) -> None:
    @step_guard(name="sides.before")
    def before(payload: dict[str, Any]) -> Answer:
        reason = "not yet"
        return {"power": "block" if ended else "suspend", "reason": reason}

    @step_guard(name="sides.passes")
    def passes(payload: dict[str, Any]) -> Answer:
        return OBSERVE

    @step_guard(name="sides.after")
    def after(payload: dict[str, Any]) -> Answer:
        return {"power": "replace", "result": "reviewed"}

    with Environment() as env:
        client = env.client.with_options(prepare_step=before, review_step=after)
        run = env.wait_for(client.start(pricing))
        env.run_until_idle()
        go_on = env.client.retry if ended else env.client.resume
        env.wait_for(go_on(run.id, prepare_step=passes))
        env.run_until_idle()
        assert env.result(run) == "reviewed"
        [replaced] = [x.event for x in env.history(run) if isinstance(x.event, e.GuardsReplaced)]
        assert replaced.guards == Guards(before=("sides.passes",), after=("sides.after",))


@pytest.mark.parametrize(
    ("keep", "left"),
    [
        (None, Guards(before=("new",), after=("new",))),
        ("before", Guards(before=("old",), after=("new",))),
        ("after", Guards(before=("new",), after=("old",))),
    ],
)
def test_a_change_is_laid_over_what_the_run_has(keep: Any, left: Guards) -> None:
    change = GuardChange(guards=Guards(before=("new",), after=("new",)), keep=keep)
    assert change.over(Guards(before=("old",), after=("old",))) == left
    assert GuardChange(keep=keep).over(None) is None


@pytest.mark.parametrize("function", [3, str])
def test_only_functions_are_declared(function: Any) -> None:
    with pytest.raises(DefinitionError, match="function of the payload"):
        step_guard(function)


@step
async def kid_price() -> int:
    return 1


@workflow
async def priced_kid() -> int:
    return await kid_price()


@workflow
async def priced_rounds(left: int) -> int:
    await kid_price()
    await start_child(priced_kid)
    if left:
        continue_as_new(left - 1)
    return left


def test_forks_new_rounds_and_children_keep_the_guards() -> None:
    asked: list[str] = []

    @step_guard(name="rounds.watch")
    def watch(payload: dict[str, Any]) -> Answer:
        asked.append(payload["workflow"])
        return OBSERVE

    with Environment() as env:
        client = env.client.with_options(prepare_step=watch)
        run = env.wait_for(client.start(priced_rounds, 1))
        env.run_until_idle()
        [_, last] = env.wait_for(env.client.chain(run.id))
        fork = env.wait_for(env.client.fork(last.run_id, at=1))
        env.run_until_idle()
        assert env.get(fork).status is RunStatus.COMPLETED
        runs = env.wait_for(env.client.list_runs()).items
    assert asked == ["priced_rounds", "priced_kid"] * 3
    assert sorted((each.workflow, each.guards is not None) for each in runs) == [
        *[("priced_kid", True)] * 3,
        *[("priced_rounds", True)] * 3,
    ]
