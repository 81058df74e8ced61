"""Conditions that hold pauses, forced cancels and retries together."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

_CONTROL = "engine/control.py"
_RETRIED = "tests/integration/test_retried_runs.py::"
_PAUSED = "tests/integration/test_paused_runs.py::"
_CANCELLING = "tests/integration/test_cancelling.py::"
_LIVES = "tests/unit/core/test_lives.py::"
_INTERRUPTED = "tests/simulation/test_forks_everywhere.py::test_a_run_that_is_interrupted_at_any_turn_comes_to_the_same"
_TOGETHER = "tests/integration/test_together.py::"
_SHIELD = "tests/unit/engine/test_shield.py::"

MUTATIONS = (
    Mutation(
        id="retry-is-about-one-end",
        module="core/reopening.py",
        was="if request.after == state.last), None)",
        becomes="if request.after), None)",
        protects="of two retries that were asked for at once, one is done",
        killed_by=(f"{_RETRIED}test_two_retries_at_once_are_one",),
    ),
    Mutation(
        id="retry-keeps-other-outcomes",
        module="core/state.py",
        was='if step.id in redo or step.status not in ("completed", "failed"):',
        becomes="if step.id:",
        protects="what had succeeded is not run again",
        killed_by=(f"{_RETRIED}test_what_failed_is_done_again_and_what_succeeded_is_not",),
    ),
    Mutation(
        id="retry-asks-anew",
        module="core/state.py",
        was="                lives.open_again(hook.id, hook.step)\n                redo.add(hook.id)\n",
        becomes="                redo.add(hook.id)\n",
        protects="a hook whose row is decided is opened under another id",
        killed_by=(f"{_LIVES}test_an_answer_stays_and_a_closed_hook_is_asked_anew",),
    ),
    Mutation(
        id="row-closed-after-the-end",
        module="core/state.py",
        was='if unknown and event.type == "HookClosed" and 0 < state.lives.late == state.last:',
        becomes="if False:",
        protects="a row closed after the end is not taken for the next life",
        killed_by=(f"{_LIVES}test_a_row_closed_after_the_end_is_not_taken_for_the_new_life",),
    ),
    Mutation(
        id="siblings-keep-successes",
        module="engine/redo.py",
        was="if _knows(identity, knowing):",
        becomes="if identity:",
        protects="what a branch did that knew nothing of the failure stays",
        killed_by=(
            "tests/unit/engine/test_redo.py::test_a_branch_that_knows_nothing_keeps_what_it_did",
        ),
    ),
    Mutation(
        id="other-input-supersedes",
        module="engine/perform.py",
        was="if known.digest != command.digest:",
        becomes="if False:",
        protects="mended code that gives another input has its step run",
        killed_by=(
            f"{_RETRIED}test_mended_code_that_gives_another_input_has_the_step_run_with_it",
        ),
    ),
    Mutation(
        id="earlier-outcome-waits-to-be-asked-for",
        module="engine/asking.py",
        was="if keyed or identity in self._lives.kept:",
        becomes="if keyed:",
        protects="mended code may ask in another order, and for less",
        killed_by=(f"{_RETRIED}test_mended_code_may_leave_records_out_and_ask_in_another_order",),
    ),
    Mutation(
        id="paused-stays-paused",
        module="engine/turn.py",
        was="if control.stays_paused(turn, message):",
        becomes="if False:",
        protects="a paused run begins nothing",
        killed_by=(f"{_PAUSED}test_an_answer_to_a_paused_run_is_recorded_and_nothing_begins",),
    ),
    Mutation(
        id="cancel-ends-a-pause",
        module=_CONTROL,
        was="turn.state.cancel is not None or _resumes(message, turn.header)",
        becomes="_resumes(message, turn.header)",
        protects="a cancel of a paused run ends it",
        killed_by=(f"{_PAUSED}test_a_cancel_ends_the_pause_and_cleanup_runs",),
    ),
    Mutation(
        id="resume-is-of-one-pause",
        module=_CONTROL,
        was="note.request_id == message.pause",
        becomes="bool(message.pause)",
        protects="an old message ends no later pause",
        killed_by=(f"{_PAUSED}test_a_resume_whose_caller_dies_is_done_by_its_message",),
    ),
    Mutation(
        id="force-needs-no-code",
        module="engine/turn.py",
        was="if control.is_forced(message):",
        becomes="if False:",
        protects="a run whose code is gone can be ended",
        killed_by=(f"{_CANCELLING}test_force_ends_a_run_whose_code_is_gone",),
    ),
    Mutation(
        id="shield-holds-cancels",
        module="engine/loop.py",
        was="if shields is not None and shields.holds(sys._getframe(1), msg):",
        becomes="if False:",
        protects="a shielded block is not cut off",
        killed_by=(f"{_SHIELD}test_a_cancel_of_the_run_waits_for_the_end_of_the_block",),
    ),
    Mutation(
        id="run-waits-for-shields",
        module="engine/replay.py",
        was="elif self._main.done() and not self.loop.shielded:",
        becomes="elif self._main.done():",
        protects="a run does not end before its shielded branches leave their blocks",
        killed_by=(f"{_SHIELD}test_other_branches_are_not_shielded",),
    ),
    Mutation(
        id="timeout-in-a-shield",
        module="engine/shields.py",
        was="if began >= self.depth:",
        becomes="if False:",
        protects="a timeout or a task group inside of a shield works as ever",
        killed_by=(
            f"{_SHIELD}test_a_timeout_inside_of_a_shield_ends_cleanup_that_hangs",
            f"{_SHIELD}test_a_task_group_inside_of_a_shield_ends_its_own_block",
        ),
        hangs=True,
    ),
    Mutation(
        id="retry-makes-all-items-anew",
        module="core/state.py",
        was="                redo.update(_forget_items(self, each))\n",
        becomes="",
        protects="a retried map does not count an item twice, and end without another one",
        killed_by=(f"{_INTERRUPTED}[map asks elsewhere-_cut]",),
    ),
    Mutation(
        id="retry-asks-hooks-of-items-anew",
        module="engine/map_items.py",
        was="if self._item.inbox or self._item.retried:",
        becomes="if self._item.inbox:",
        protects="items of a map that a retry makes anew do not end at hooks that were closed before",
        killed_by=(f"{_INTERRUPTED}[map asks elsewhere-_cut]",),
    ),
    Mutation(
        id="held-runs-send-what-was-not-sent",
        module="engine/settle.py",
        was="    return turn.header.last_event if lags else turn.state.last\n",
        becomes="    return turn.state.last\n",
        protects="what a turn began that died is sent, though the next ones were held",
        killed_by=(
            f"{_TOGETHER}test_what_was_not_sent_before_a_run_was_held_is_sent_when_it_goes_on[paused-steps.send]",
            f"{_TOGETHER}test_what_was_not_sent_before_a_run_was_held_is_sent_when_it_goes_on[blocked-steps.send_items]",
        ),
    ),
    Mutation(
        id="timers-of-each-life",
        module="core/waiting.py",
        was="yield Alarm(timer.due, timer.id, self.lives.retried)",
        becomes="yield Alarm(timer.due, timer.id, 0)",
        protects="a timer of the life before does not stand in for one of this, nor take it along",
        killed_by=(
            f"{_LIVES}test_what_waits_under_one_id_in_two_lives_has_an_arm_of_its_own_in_each",
        ),
    ),
    Mutation(
        id="tombstone-says-how-it-ended",
        module="engine/deletion.py",
        was="        status=_ended_as(commits),\n",
        becomes="",
        protects="a deleted run is not taken for one that goes on",
        killed_by=(
            "tests/integration/test_together.py::test_a_deleted_run_has_ended_though_somebody_asked_for_a_retry_meanwhile",
        ),
    ),
)
