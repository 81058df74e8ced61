"""Conditions against whoever was overtaken: a frozen turn, an attempt that was called off."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

_OVERTAKEN = "tests/acceptance/test_overtaken.py::"

MUTATIONS = (
    Mutation(
        id="met-decided-is-recorded",
        module="engine/hooks.py",
        was="    return known is None or known.open\n",
        becomes="    return row.status is HookStatus.PENDING if known is None else known.open\n",
        protects="an answer is recorded though its hook was never noted to be open",
        killed_by=(
            f"{_OVERTAKEN}test_an_answer_that_its_turn_meets_while_it_opens_another_hook_is_recorded",
        ),
    ),
    Mutation(
        id="hook-of-an-attempt-is-confirmed",
        module="engine/hooks.py",
        was="    if turn.confirm is not None:\n",
        becomes="    if False:\n",
        protects="an attempt that was called off tells nobody of its hook",
        killed_by=(f"{_OVERTAKEN}test_an_attempt_that_was_called_off_tells_nobody_of_its_hook",),
    ),
    Mutation(
        id="called-off-then-read",
        module="engine/dispatch.py",
        was="    turn.take_rows(rows.hooks)\n",
        becomes="",
        protects="whoever calls an attempt off knows of the hooks that it has opened",
        killed_by=(
            f"{_OVERTAKEN}test_whoever_calls_an_attempt_off_knows_of_the_hook_that_it_has_opened",
        ),
    ),
    Mutation(
        id="checkpoint-is-fenced",
        module="engine/step_runner.py",
        was="if self._turn.overtakes and not self._took_over:",
        becomes="if False:",
        protects="a frozen entry saves no checkpoint once a later one has looked",
        killed_by=(
            f"{_OVERTAKEN}test_a_frozen_entry_saves_no_checkpoint_once_a_later_one_has_looked",
        ),
    ),
    Mutation(
        id="no-answer-after-the-end",
        module="engine/answering.py",
        was="if not header.status.terminal:",
        becomes="if True:",
        protects="an answer is refused once its run has ended, whatever its row says",
        killed_by=(
            f"{_OVERTAKEN}test_a_hook_that_is_opened_after_the_end_of_its_run_takes_no_answer",
        ),
    ),
    Mutation(
        id="overtaken-attempt-closes",
        module="engine/attempt.py",
        was="                await self._tidy()\n                raise TransientError(str(error)) from error\n",
        becomes="                raise TransientError(str(error)) from error\n",
        protects="what was opened after the end does not stay open",
        killed_by=(f"{_OVERTAKEN}test_an_overtaken_attempt_closes_what_it_opened_after_the_end",),
    ),
    Mutation(
        id="not-before-its-message",
        module="engine/journal.py",
        was="max(self._clock.now(), self.state.at, self._not_before)",
        becomes="max(self._clock.now(), self.state.at)",
        protects="nothing is early by the log, however slow a worker's clock is",
        killed_by=(f"{_OVERTAKEN}test_a_retry_is_never_early_by_the_log_of_a_slow_worker",),
    ),
    Mutation(
        id="cancel-holds-steps",
        module="engine/passes.py",
        was="loop.time() < stop_at and not performer.cancelled",
        becomes="loop.time() < stop_at",
        protects="a turn that has seen a cancel begins no more steps",
        killed_by=(
            "tests/acceptance/test_scenarios.py::test_a_scenario_comes_out_as_it_says[cancel-of-a-step-at-work]",
        ),
    ),
)
