"""`current.logger`: each line of a workflow is said once, however often its code is replayed."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from stepwell import RetryPolicy, Suspend, current, hook, sleep, step, workflow
from stepwell.core.records import RunStatus
from stepwell.testing import Environment


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.INFO, logger="stepwell.author"):
        yield caplog


def records(said: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [each for each in said.records if each.name == "stepwell.author"]


def lines(said: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in records(said)]


def test_a_line_of_a_workflow_is_said_once_over_many_turns(
    env: Environment, said: pytest.LogCaptureFixture
) -> None:
    @step
    async def look() -> int:
        current.logger.info("looks")
        return 1

    @workflow
    async def flow() -> None:
        current.logger.info("begins")
        await look()
        current.logger.info("has looked")
        await sleep("1h")
        current.logger.info("has slept")
        await hook("ask")
        current.logger.info("ends")

    run = env.start(flow)
    env.run_until_idle()
    env.advance("1h")
    env.resume_hook(env.hooks(run)[0].token, None)
    env.run_until_idle()
    assert env.get(run).status is RunStatus.COMPLETED
    assert lines(said) == ["begins", "looks", "has looked", "has slept", "ends"]


def test_nothing_is_said_again_while_a_step_waits_for_its_next_attempt(
    env: Environment, said: pytest.LogCaptureFixture
) -> None:
    @step(retry=RetryPolicy(initial="1m", jitter="none"))
    async def flaky() -> None:
        current.logger.info("attempt %d", current.attempt)
        if current.attempt < 3:
            raise OSError("down")

    @workflow
    async def flow() -> None:
        current.logger.info("begins")
        await flaky()
        current.logger.info("ends")

    run = env.start(flow)
    env.run_until_idle()
    env.advance("1h")
    assert env.get(run).status is RunStatus.COMPLETED
    assert lines(said) == ["begins", "attempt 1", "attempt 2", "attempt 3", "ends"]


def test_a_run_that_is_cancelled_before_its_first_turn_says_its_lines(
    env: Environment, said: pytest.LogCaptureFixture
) -> None:
    @workflow
    async def flow() -> None:
        current.logger.info("begins")
        try:
            await sleep("1h")
        finally:
            current.logger.info("cleans up")

    run = env.start(flow)
    env.cancel(run, "no longer wanted")
    env.run_until_idle()
    assert env.get(run).status is RunStatus.CANCELLED
    assert lines(said) == ["begins", "cleans up"]


def test_a_cancelled_run_does_not_repeat_what_it_said_before(
    env: Environment, said: pytest.LogCaptureFixture
) -> None:
    @workflow
    async def flow() -> None:
        current.logger.info("begins")
        try:
            await sleep("1h")
        finally:
            current.logger.info("cleans up")

    run = env.start(flow)
    env.run_until_idle()
    env.cancel(run, "no longer wanted")
    env.run_until_idle()
    assert lines(said) == ["begins", "cleans up"]


def test_a_workflow_that_begins_again_for_input_says_its_lines_again(
    env: Environment, said: pytest.LogCaptureFixture
) -> None:
    @workflow
    async def flow() -> None:
        current.logger.info("begins")
        if "go" not in current.run.inbox:
            raise Suspend("go?")
        current.logger.info("goes on")
        await sleep("1h")
        current.logger.info("ends")

    run = env.start(flow)
    env.run_until_idle()
    env.put_inbox(run, "go", True)
    assert lines(said) == ["begins", "begins", "goes on"]
    env.advance("1h")
    assert lines(said) == ["begins", "begins", "goes on", "ends"]


def test_lines_say_what_they_are_about(env: Environment, said: pytest.LogCaptureFixture) -> None:
    @step
    def look() -> None:
        current.logger.warning("in the step", extra={"shelf": 7})

    @workflow
    def flow() -> bool:
        current.logger.info("in the workflow")
        look()
        return current.replaying

    run = env.start(flow)
    env.run_until_idle()
    assert env.run_to_end(run) is False
    first, second = (each.__dict__ for each in records(said))
    assert first["run_id"] == second["run_id"] == run.id
    assert "step_id" not in first
    assert (second["step_id"], second["attempt"], second["shelf"]) == ("look:1", 1, 7)


def test_code_can_ask_whether_it_is_being_replayed(env: Environment) -> None:
    seen: list[bool] = []

    @workflow
    async def flow() -> None:
        seen.append(current.replaying)
        await sleep("1h")
        seen.append(current.replaying)

    env.start(flow)
    env.run_until_idle()
    env.advance("1h")
    assert seen == [False, True, False]


def test_outside_a_run_the_logger_is_a_plain_one(said: pytest.LogCaptureFixture) -> None:
    current.logger.info("nowhere %s", "special")
    assert lines(said) == ["nowhere special"]
    assert current.replaying is False
    assert not hasattr(records(said)[0], "run_id")
