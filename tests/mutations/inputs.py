"""Conditions of input: entries of inboxes, code that begins again, and guards."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

_INBOX = "tests/integration/test_inbox.py::"
_GUARDS = "tests/integration/test_guards.py::"
_CALLER = "tests/acceptance/test_scenarios.py::test_a_scenario_comes_out_as_it_says"

INBOXES = (
    Mutation(
        id="input-turn-puts-the-row",
        module="engine/recording.py",
        was="if isinstance(message, InboxPut) and message.entry_id not in turn.inbox:",
        becomes="if False:",
        protects="an entry whose caller died after its message is there",
        killed_by=(f"{_CALLER}[input-whose-caller-dies-anywhere]",),
    ),
    Mutation(
        id="input-recorded-once",
        module="core/decide.py",
        was="if row.entry_id not in state.entries:",
        becomes="if True:",
        protects="an entry is recorded once",
        killed_by=(f"{_INBOX}test_the_latest_entry_of_a_key_counts_and_none_is_lost",),
    ),
    Mutation(
        id="input-conflict",
        module="engine/inboxes.py",
        was="if (standing.key, standing.payload) != (key, message.payload):",
        becomes="if False:",
        protects="another value under the id of an entry is refused",
        killed_by=(f"{_INBOX}test_an_entry_id_makes_two_sends_one_entry",),
    ),
    Mutation(
        id="input-of-an-ended-run",
        module="engine/inboxes.py",
        within="Inboxes.put",
        was="if _has_ended(header):",
        becomes="if False:",
        protects="nobody is promised that a run sees what it cannot see any more",
        killed_by=(f"{_INBOX}test_a_run_that_has_ended_takes_no_entry_but_knows_those_it_has",),
    ),
    Mutation(
        id="input-resumed-once",
        module="core/decide.py",
        was=" or message.request_id in state.requests:",
        becomes=":",
        protects="a request that comes twice is one request",
        killed_by=(
            "tests/simulation/test_crash_everywhere.py::test_a_message_that_comes_twice_changes_nothing[guards]",
        ),
    ),
    Mutation(
        id="input-together",
        module="core/state.py",
        was=" or 0 < state.epoch == state.last:",
        becomes=":",
        protects="code that begins again has all input that came together",
        killed_by=(f"{_INBOX}test_of_two_entries_of_one_moment_the_later_one_counts",),
    ),
    Mutation(
        id="input-wakes-what-is-away",
        module="core/state.py",
        was="if step.reason is not None or step.order:",
        becomes="if step.reason is not None:",
        protects="a dispatched step that suspends for what came meanwhile is entered again",
        killed_by=(f"{_INBOX}test_input_that_comes_while_a_dispatched_step_is_away_wakes_it",),
    ),
    Mutation(
        id="input-suspends-anyway",
        module="engine/step_runner.py",
        within="StepEntry._outcome",
        was="if self._suspended:",
        becomes="if False:",
        protects="a body that makes an error of its suspension is suspended all the same",
        killed_by=(f"{_INBOX}test_a_step_that_raises_something_else_is_suspended_all_the_same",),
    ),
)

GUARDS = (
    Mutation(
        id="guard-unknown",
        module="engine/chains.py",
        was="        if guard is None:\n            raise UnknownGuard(name)\n",
        becomes="",
        protects="a run whose guard is not known runs no step",
        killed_by=(f"{_GUARDS}test_a_guard_of_another_process_is_said_to_be_one",),
    ),
    Mutation(
        id="guard-replacement-counts",
        module="engine/guarding.py",
        was="if given is not None or self._over:",
        becomes="if self._over:",
        protects="a body whose result a guard gives does not run",
        killed_by=(f"{_GUARDS}test_null_is_a_replacement_too",),
    ),
    Mutation(
        id="guard-after-cannot-suspend",
        module="engine/guarding.py",
        was="        if not self._reviewing:\n            super().suspend(reason)\n",
        becomes="        super().suspend(reason)\n",
        protects="a body that has returned does not run again for a guard's sake",
        killed_by=(
            f"{_GUARDS}test_a_guard_after_the_step_cannot_suspend_it_for_the_body_would_run_once_more",
        ),
    ),
    Mutation(
        id="guard-raises-as-if-told-to-end",
        module="engine/guarding.py",
        was="return task is not None and task.cancelling() > 0",
        becomes="return True",
        protects="a cancellation that a guard raises is the guard's failure",
        killed_by=(f"{_GUARDS}test_whatever_goes_wrong_with_a_guard_the_body_does_not_run",),
    ),
    Mutation(
        id="guards-of-the-other-side",
        module="core/records.py",
        was='elif self.keep == "after":',
        becomes="elif False:",
        protects="whoever replaces the guards before steps does not take away those after",
        killed_by=(f"{_GUARDS}test_guards_of_the_other_side_stay_when_one_side_is_replaced",),
    ),
    Mutation(
        id="suspension-in-a-group",
        module="authoring/suspension.py",
        was="if isinstance(error, BaseExceptionGroup):",
        becomes="if False:",
        protects="a task group does not make a failure of a wait for input",
        killed_by=(f"{_INBOX}test_a_suspension_that_was_made_elsewhere_counts_in_a_group_too",),
    ),
    Mutation(
        id="guard-reason",
        module="authoring/guards.py",
        was='if power in ("block", "suspend") and not (isinstance(reason, str) and reason):',
        becomes="if False:",
        protects="an answer that says nothing fails closed",
        killed_by=(f"{_GUARDS}test_whatever_goes_wrong_with_a_guard_the_body_does_not_run",),
    ),
)

MUTATIONS = (*INBOXES, *GUARDS)
