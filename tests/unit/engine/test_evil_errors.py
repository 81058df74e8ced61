"""Exceptions whose own methods fail are outcomes like any other."""

from __future__ import annotations

from typing import Any

import pytest

from stepwell import HookFailed, RetryPolicy, StepFailed, hook, step, workflow
from stepwell.core.failure import describe
from stepwell.core.records import RunStatus
from stepwell.testing import Environment
from stepwell.testing.laws import check_run

ONCE = RetryPolicy(max_attempts=1)


class Delegating(Exception):
    def __getattr__(self, name: str) -> Any:
        return {}[name]


class Exiting(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


class Failing(Exception):
    @property
    def failure(self) -> Any:
        raise RuntimeError


class Noted(Exception):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.add_note("\udcff")


Endless: type[Exception] = type("E" * 500_000, (Exception,), {})
Surrogate: type[Exception] = type("Odd", (Exception,), {"__qualname__": "Odd\ud800"})

EVIL = [Delegating, Exiting, Failing, Noted, Endless, Surrogate]


@pytest.mark.parametrize("kind", EVIL)
def test_it_is_described_shortly_and_can_be_recorded(kind: type[Exception]) -> None:
    failure = describe(kind("x"))
    for text in (failure.type, failure.message):
        assert len(text) <= 2_000
        assert text.encode()


@pytest.mark.parametrize("kind", EVIL)
def test_it_ends_a_step_a_workflow_and_a_hook(
    kind: type[Exception], stepwell_env: Environment
) -> None:
    @step(retry=ONCE)
    async def bad() -> None:
        raise kind("x")

    @step(retry=ONCE)
    def bad_in_a_thread() -> None:
        raise kind("x")

    def cannot_tell(token: str) -> None:
        raise kind(token)

    @workflow
    async def flow() -> None:
        ended = 0
        for wait in (bad(), bad_in_a_thread.aio()):
            try:
                await wait
            except StepFailed:
                ended += 1
        try:
            await hook("question", on_created=cannot_tell)
        except HookFailed:
            ended += 1
        assert ended == 3
        raise kind("x")

    run = stepwell_env.start(flow)
    stepwell_env.advance("1h")
    assert stepwell_env.get(run).status is RunStatus.FAILED
    failure = stepwell_env.get(run).error
    assert failure is not None
    assert "AssertionError" not in failure.type
    check_run(stepwell_env, run)
