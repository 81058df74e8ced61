"""Functions at the doors, killed at any request: what was accepted happens, and happens once."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import suppress

import pytest

from examples.outside import Outside
from tests.deployed.driving import answer, forget, header, now, open_hooks, result, start
from tests.deployed.front import Request
from tests.deployed.function import Died
from tests.deployed.pump import Deployment, Kill

DONE = pytest.mark.parametrize("done", [False, True], ids=["before", "after"])


def each_kill(
    aws: Deployment,
    function: str,
    done: bool,
    scenario: Callable[[], None],
    wanted: Callable[[Request], bool] = lambda request: True,
) -> int:
    """Play a scenario with a kill at each request that the function makes; how many there were.

    At each that is `wanted`, to be exact.
    """
    for number in itertools.count(1):
        forget(aws)
        aws.patient = True
        kill = Kill(function=function, request=number, done=done, wanted=wanted)
        with aws.killing(kill):
            scenario()
        if kill.happened is None:
            return number - 1
    raise AssertionError


@DONE
def test_a_start_that_is_asked_for_again_is_one_run(
    done: bool, aws: Deployment, world: Outside
) -> None:
    def scenario() -> None:
        run_id = start(aws, "hand_over", "one", item="stone")
        aws.settle()
        assert start(aws, "hand_over", "one", item="stone") == run_id
        assert header(aws, run_id).result == '"crushed stone"'
        assert world.requests("crush") == 1
        assert len(now(aws.client.list_runs()).items) == 1

    assert each_kill(aws, "api", done, scenario) >= 2


@DONE
def test_an_answer_that_is_given_again_is_one_answer(done: bool, aws: Deployment) -> None:
    def scenario() -> None:
        run_id = start(aws, "ask", "one", question="ready?", timeout="1h")
        aws.settle()
        [hook] = open_hooks(aws, run_id)
        assert answer(aws, hook, "yes").status == 200
        assert answer(aws, hook, "yes").status == 200
        aws.settle()
        assert header(aws, run_id).result == '"ready? yes"'

    assert each_kill(aws, "api", done, scenario) >= 2


def test_an_answer_whose_sender_is_gone_counts_once_its_message_was_sent(aws: Deployment) -> None:
    run_id = start(aws, "ask", question="ready?", timeout="1h")
    aws.settle()
    [hook] = open_hooks(aws, run_id)
    sends = Kill(
        function="api", request=1, done=True, wanted=lambda each: each.operation == "SendMessage"
    )
    with aws.killing(sends), pytest.raises(Died):
        answer(aws, hook, "yes")
    aws.settle()
    assert result(aws, run_id) == "ready? yes"
    assert answer(aws, hook, "yes").status == 200
    assert answer(aws, hook, "no").status == 409


def test_a_start_whose_sender_is_gone_counts_once_its_message_was_sent(aws: Deployment) -> None:
    sends = Kill(
        function="api", request=1, done=True, wanted=lambda each: each.operation == "SendMessage"
    )
    with aws.killing(sends), pytest.raises(Died):
        start(aws, "count_up", "one", steps=2)
    aws.settle()
    assert result(aws, start(aws, "count_up", "one", steps=2)) == 2


@DONE
def test_a_message_outlives_the_function_that_had_it(done: bool, aws: Deployment) -> None:
    def scenario() -> None:
        aws.send({"type": "start", "workflow": "ask", "input": {"question": "q", "timeout": "1d"}})
        aws.settle()
        aws.advance(181)  # what an inbox that died held
        aws.settle()
        [run] = aws.http("GET", "/v1/runs").json["runs"]
        [hook] = open_hooks(aws, run["run_id"])
        aws.send({"type": "resume_hook", "token": hook.token, "payload": "yes"})
        aws.settle()
        aws.advance(181)
        aws.settle()
        assert result(aws, run["run_id"]) == "q yes"
        assert [row for row in aws.items() if "message_id" in row] == []

    assert each_kill(aws, "inbox", done, scenario) >= 4


@DONE
def test_the_sweeper_may_die_as_well(done: bool, aws: Deployment) -> None:
    def scenario() -> None:
        run_id = start(aws, "nap", "one", duration="10m")
        aws.settle()
        aws.queues.clear()
        aws.queues.put("RunDeadLetters", '{"type":"from the future"}', run_id)
        aws.advance(16 * 60)
        for _ in range(2):
            with suppress(Died):
                aws.sweep()
        aws.settle()
        assert len([row for row in aws.items() if "message_id" in row]) == 1
        if header(aws, run_id).attention is not None:
            assert header(aws, run_id).attention.kind == "STUCK"
        else:
            assert result(aws, run_id) == "awake"

    assert each_kill(aws, "sweeper", done, scenario) >= 3
