"""Conditions of what a run says of itself: patches, attributes, the context."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

_REMARKS = "engine/remarks.py"
_PATCHES = "tests/integration/test_patches.py::"
_ATTRIBUTES = "tests/integration/test_attributes.py::"
_SIGNALS = "tests/integration/test_last_signals.py::"
_CONTEXT = "tests/integration/test_run_context.py::"

REMARKS = (
    Mutation(
        id="patch-behind-the-record",
        module=_REMARKS,
        was="        if self._ahead():\n            return False\n",
        becomes="",
        protects="a run that older code has taken further keeps its way",
        killed_by=(f"{_PATCHES}test_a_run_from_before_the_change_keeps_its_way_to_the_end",),
    ),
    Mutation(
        id="patch-behind-an-open-hook",
        module="engine/replay.py",
        was="self.replaying or next(self._unasked(), None) is not None",
        becomes="self.replaying",
        protects="a hook that is open ahead says that older code has gone past, with nothing to tell",
        killed_by=(f"{_PATCHES}test_a_hook_that_only_its_row_knows_counts_as_history",),
    ),
    Mutation(
        id="patch-marked",
        module=_REMARKS,
        was="if patch in self._state.patches:",
        becomes="if False:",
        protects="the way that was taken once is taken on every replay",
        killed_by=(f"{_PATCHES}test_a_new_run_takes_the_new_way_and_says_so_once",),
    ),
    Mutation(
        id="remarks-before-effects",
        module="engine/perform.py",
        was="                self.record_remarks()\n",
        becomes="                pass\n",
        protects="what the code said is durable before the next step begins",
        killed_by=(f"{_PATCHES}test_the_mark_is_durable_before_the_step_behind_it_begins",),
    ),
    Mutation(
        id="remarks-at-the-end",
        module="engine/passes.py",
        was="            await performer.record_rest()\n",
        becomes="            pass\n",
        protects="what the code said last, before it ended, is recorded too",
        killed_by=(f"{_ATTRIBUTES}test_they_are_shown_while_the_run_waits_and_after_it_ended",),
    ),
    Mutation(
        id="remarks-of-code-that-does-not-fit",
        module="engine/passes.py",
        was="if not isinstance(replay.outcome, Blocked):",
        becomes="if replay:",
        protects="code that does not fit has no effect, nor does it mark anything",
        killed_by=(f"{_PATCHES}test_a_code_that_does_not_fit_marks_nothing",),
    ),
    Mutation(
        id="signals-at-the-end",
        module="engine/perform.py",
        was="            await self._signals.perform_last()\n",
        becomes="            pass\n",
        protects="a signal that the code emitted last, before it ended, is sent",
        killed_by=(f"{_SIGNALS}test_what_a_workflow_emits_before_it_returns_is_sent",),
    ),
    Mutation(
        id="attributes-once",
        module=_REMARKS,
        was="            if known.get(name, NOTHING) != text\n",
        becomes="",
        protects="a replay that sets them again records nothing",
        killed_by=(f"{_ATTRIBUTES}test_a_replay_records_nothing_again",),
    ),
    Mutation(
        id="context-as-of-the-call",
        module="engine/dispatch.py",
        was="context=None if command.context is None else command.context.text,",
        becomes="context=None,",
        protects="a dispatched step reads the context that it was called with",
        killed_by=(
            f"{_CONTEXT}test_a_step_keeps_what_it_was_called_with_over_its_attempts[dispatched]",
        ),
    ),
)
