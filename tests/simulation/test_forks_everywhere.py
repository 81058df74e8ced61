"""A fork from any event of a run goes on, and a run that is interrupted comes to the same.

Forks begin with part of a log, and retries go on with what is kept of it: whatever primitives a
workflow uses, its code has to fit what is left.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from examples.outside import connect
from stepwell.client import RunHandle
from stepwell.core.records import RunStatus
from stepwell.errors import NotRetryable
from stepwell.testing import Environment
from tests.simulation.scenario import Scenario
from tests.simulation.scenarios import SCENARIOS


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_a_fork_from_any_event_fits_its_code(scenario: Scenario) -> None:
    connect(":memory:")
    with Environment(chance=0.5) as env:
        run = env.start(scenario.workflow, *scenario.args)
        env.run_until_idle()
        scenario.script(env, run)
        events = env.history(run)
        forks: list[RunHandle[Any]] = []
        for number in range(1, len(events) + 1):
            forks.append(env.wait_for(env.client.fork(run.id, at=number)))
            env.run_until_idle()
        env.advance("10h")
        unfit = [(n, env.get(forked).attention) for n, forked in enumerate(forks, 1)]
    assert [each for each in unfit if each[1] is not None] == []
    assert forks


#: Whose scripts do the same themselves.
_OPERATED = ("paused", "reopened")
#: A stream run that goes on takes the signal anew that was under way: its questions are asked again
#: and who has answered is not there to do it.
_ASKED_AGAIN = ("office",)
_UNDISTURBED = [each for each in SCENARIOS if each.name not in _OPERATED]


class _Interrupting(Environment):
    """Interrupts its first run after so many turns."""

    def __init__(self, after: int, interrupt: Callable[[Environment, str], None]) -> None:
        super().__init__(chance=0.5)
        self._left = after
        self._interrupt = interrupt
        self.interrupted = False

    def take_turn(self) -> bool:
        """Take one turn, and interrupt the run when it is time to."""
        worked = super().take_turn()
        self._left -= worked
        if worked and self._left == 0:
            [*_, first] = self.wait_for(self.client.list_runs(limit=200)).items
            if not first.status.terminal:
                self.interrupted = True
                self._interrupt(self, first.run_id)
        return worked


def _cut(env: Environment, run_id: str) -> None:
    env.wait_for(env.client.cancel(run_id, "for a moment", force=True))
    while not env.wait_for(env.client.get(run_id)).status.terminal:
        assert env.take_turn()
    with suppress(NotRetryable):  # it ended otherwise before the cancel came
        env.wait_for(env.client.retry(run_id))


def _hold(env: Environment, run_id: str) -> None:
    env.wait_for(env.client.pause(run_id, "for a moment"))
    env.run_until_idle()
    env.wait_for(env.client.resume(run_id))


def _played(scenario: Scenario, env: Environment) -> tuple[RunStatus, str]:
    """How it ended, and as what: without ids, for a retry starts children as other runs."""
    connect(":memory:")
    run = env.start(scenario.workflow, *scenario.args)
    env.run_until_idle()
    scenario.script(env, run)
    if not env.get(run).status.terminal:
        env.advance("1m")  # a retry waits for the end of what it will retry as well
    ended = env.get(run)
    return ended.status, re.sub("[0-9a-f]{8}", "id", ended.result or "")


_INTERRUPTED = [
    pytest.param(scenario, interrupt, id=f"{scenario.name}-{interrupt.__name__}")
    for scenario in _UNDISTURBED
    for interrupt in (_cut, _hold)
    if interrupt is _hold or scenario.name not in _ASKED_AGAIN
]


@pytest.mark.parametrize(("scenario", "interrupt"), _INTERRUPTED)
def test_a_run_that_is_interrupted_at_any_turn_comes_to_the_same(
    scenario: Scenario, interrupt: Callable[[Environment, str], None]
) -> None:
    with Environment(chance=0.5) as env:
        expected = _played(scenario, env)
    after, interrupted = 0, True
    while interrupted:
        after += 1
        with _Interrupting(after, interrupt) as env:
            found = _played(scenario, env)
            interrupted = env.interrupted
        assert found == expected, f"after turn {after}"
