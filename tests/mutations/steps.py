"""Conditions of steps with options and keys: what is begun once, what may wait, who shares."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

_PERFORM = "engine/perform.py"
_ONCE = "tests/integration/test_at_most_once.py::"
_LAZY = "tests/integration/test_lazy_commits.py::"
_KEYS = "tests/integration/test_keys.py::"

AT_MOST_ONCE = (
    Mutation(
        id="start-durable-before-an-attempt-that-is-made-once",
        module=_PERFORM,
        within="Performer._start",
        was="if self._turn.overtakes or entry.command.step.at_most_once:",
        becomes="if self._turn.overtakes:",
        protects="an attempt that may be made once is known before it begins",
        killed_by=(
            f"{_ONCE}test_wherever_the_process_dies_the_body_runs_at_most_once[inline]",
            f"{_ONCE}test_a_start_is_durable_before_the_body",
        ),
    ),
    Mutation(
        id="begun-attempt-is-not-begun-again",
        module=_PERFORM,
        within="Performer._was_interrupted",
        was="not command.step.at_most_once and ",
        becomes="",
        protects="an attempt that may be made once is over when its process died",
        killed_by=(f"{_ONCE}test_wherever_the_process_dies_the_body_runs_at_most_once[inline]",),
    ),
    Mutation(
        id="claim-of-an-attempt-that-is-made-once-stays",
        module="engine/attempt.py",
        was="            if not self._definition.at_most_once:\n",
        becomes="            if True:\n",
        protects="a dispatched attempt that may be made once is not taken over",
        killed_by=(f"{_ONCE}test_a_dispatched_attempt_whose_port_failed_is_not_made_again",),
    ),
    Mutation(
        id="interruption-is-final-unless-named",
        module="engine/outcomes.py",
        was="not command.step.at_most_once or StepInterrupted in policy.retry_on",
        becomes="True",
        protects="an interrupted attempt is followed by another one only if the policy says so",
        killed_by=(f"{_ONCE}test_an_interrupted_attempt_is_the_last_one",),
    ),
)

LAZY = (
    Mutation(
        id="lazy-outcome-makes-nobody-wait",
        module="engine/journal.py",
        was="        if not lazy:\n",
        becomes="        if True:\n",
        protects="a lazy outcome costs no write of its own",
        killed_by=(f"{_LAZY}test_any_number_of_lazy_steps_costs_one_write[5]",),
    ),
    Mutation(
        id="outcome-of-a-plain-step-is-not-lazy",
        module=_PERFORM,
        was='lazy=command.step.commit == "lazy"',
        becomes="lazy=True",
        protects="a plain outcome is durable before the next effect",
        killed_by=(f"{_LAZY}test_a_step_after_a_lazy_one_does_not_wait_for_its_outcome",),
    ),
    Mutation(
        id="lazy-step-over-before-its-hooks-are-closed",
        module="engine/hooks.py",
        within="close_all",
        was="turn.journal.behind",
        becomes="turn.journal.needs_flush",
        protects="a lazy step does not find its own hooks closed after a crash",
        killed_by=(f"{_LAZY}test_a_lazy_step_that_leaves_hooks_is_over_before_they_are_closed",),
    ),
    Mutation(
        id="lazy-outcome-before-a-hook",
        module="engine/hooks.py",
        within="put_row",
        was="turn.journal.behind",
        becomes="turn.journal.needs_flush",
        protects="an answer does not come before the lazy outcome that led to its question",
        killed_by=(f"{_LAZY}test_an_answer_does_not_overtake_what_led_to_its_question",),
    ),
)

KEYS = (
    Mutation(
        id="key-means-one-step",
        module="engine/keyed.py",
        was="        if name != known.step.name:\n",
        becomes="        if False:\n",
        protects="a key never gives the value of another step",
        killed_by=(f"{_KEYS}test_a_key_that_means_another_call_is_refused_alike_on_every_pass",),
    ),
    Mutation(
        id="key-means-one-input",
        module="engine/keyed.py",
        was="        if digest != known.digest:\n",
        becomes="        if False:\n",
        protects="a key never gives the value for another input",
        killed_by=(f"{_KEYS}test_a_key_that_means_another_call_is_refused_alike_on_every_pass",),
    ),
    Mutation(
        id="last-who-waits-for-a-key",
        module="engine/keyed.py",
        was="not self._waiting and not self.future.done()",
        becomes="not self.future.done()",
        protects="a call that another one waits for is not cancelled",
        killed_by=(f"{_KEYS}test_a_call_is_cancelled_when_the_last_who_waits_for_it_is",),
    ),
    Mutation(
        id="outcome-of-a-key-waits-to-be-asked-for",
        module="engine/asking.py",
        was="if keyed or identity in self._lives.kept:",
        becomes="if identity in self._lives.kept:",
        protects="keyed calls may come in another order than they are recorded in",
        killed_by=(
            "tests/unit/engine/test_nondeterminism.py::test_calls_with_keys_may_change_their_order_and_their_place",
        ),
    ),
)

_SAGAS = "authoring/sagas.py"
_SAGA = "tests/integration/test_sagas.py::"

SAGAS = (
    Mutation(
        id="saga-waits-for-its-branches",
        module=_SAGAS,
        was="            await self._wait_for_calls()\n",
        becomes="            pass\n",
        protects="what another branch still does is undone too",
        killed_by=(f"{_SAGA}test_what_other_branches_still_do_is_waited_for_and_undone",),
    ),
    Mutation(
        id="compensation-outlives-a-cancel",
        module=_SAGAS,
        within="Saga._undo",
        was="                if ended:\n                    raise\n",
        becomes="                raise\n",
        protects="a compensation under way is carried out though the code is cancelled",
        killed_by=(f"{_SAGA}test_a_timeout_in_a_compensation_is_told_after_it",),
    ),
    Mutation(
        id="compensations-go-to-the-outer-saga",
        module=_SAGAS,
        was="            heir._due += self._due\n",
        becomes="",
        protects="a block that went well is undone with the block around it",
        killed_by=(f"{_SAGA}test_blocks_nest",),
    ),
    Mutation(
        id="dropped-calls-end",
        module="engine/asking.py",
        was="                pending.future.cancel()  # whoever",
        becomes="                pass  # whoever",
        protects="a block does not wait for calls that were dropped",
        killed_by=(f"{_SAGA}test_items_that_a_failed_map_drops_hold_nothing_up",),
    ),
    Mutation(
        id="retry-does-again-what-was-undone",
        module="engine/redo.py",
        was="for by, step in self._undone.items() if by in found]",
        becomes="for by, step in self._undone.items() if False]",
        protects="a retried run does not count on what was undone",
        killed_by=(f"{_SAGA}test_a_retry_does_again_what_was_undone[True]",),
    ),
    Mutation(
        id="retry-leaves-what-was-undone-before",
        module="engine/redo.py",
        was="for by, step in self._undone.items() if by in found]",
        becomes="for by, step in self._undone.items()]",
        protects="a retry does not do again what stays undone",
        killed_by=(f"{_SAGA}test_a_retry_leaves_what_was_undone_on_the_way_to_something_else",),
    ),
    Mutation(
        id="one-failed-compensation-does-not-stop-the-others",
        module=_SAGAS,
        within="Saga._undo_all",
        was="                failed.append(problem)\n",
        becomes="                raise\n",
        protects="all compensations are tried",
        killed_by=(f"{_SAGA}test_errors_of_compensations_are_collected",),
    ),
)

_GIVEN = "tests/integration/test_arguments.py::"
_LATER = f"{_GIVEN}test_what_the_code_changes_after_the_call_does_not_reach_the_step"

ARGUMENTS = (
    Mutation(
        id="each-attempt-has-arguments-of-its-own",
        module="core/commands.py",
        within="RunStep.given",
        was="if self.text is None:",
        becomes="if True:",
        protects="what a body changes of its arguments the workflow does not see",
        killed_by=(
            f"{_GIVEN}test_what_a_body_changes_stays_with_it[async]",
            f"{_GIVEN}test_the_next_attempt_and_the_next_entry_begin_with_what_was_given",
        ),
    ),
    Mutation(
        id="arguments-are-kept-at-the-call",
        module="core/commands.py",
        within="RunStep.input",
        was="if self.text is not None:",
        becomes="if False:",
        protects="a dispatched step gets its arguments as they were at the call",
        killed_by=(f"{_LATER}[dispatched]",),
    ),
    Mutation(
        id="items-are-kept-at-the-call",
        module="engine/fan_out.py",
        was="if identity not in self._state.maps:",
        becomes="if False:",
        protects="the items of a dispatched map are as they were at the call",
        killed_by=(f"{_LATER}[dispatched map]",),
    ),
    Mutation(
        id="arguments-of-recorded-steps-are-not-kept",
        module="engine/fan_out.py",
        within="kept",
        was="known is not None and known.status in _ENDED and known.digest == digest",
        becomes="False",
        protects="a replay does not pay for what has an outcome",
        killed_by=(
            f"{_GIVEN}test_a_replay_of_recorded_steps_does_not_carry_their_arguments_again",
        ),
    ),
)

STEPS = (*AT_MOST_ONCE, *LAZY, *KEYS, *SAGAS, *ARGUMENTS)
