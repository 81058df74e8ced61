"""Conditions of the sweep, and of the lists that it and readers go by."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

_SWEEP = "engine/sweep.py"
_LISTS = "adapters/aws/lists.py"
_SWEEPER = "tests/integration/aws/test_sweeper.py::"
_MARKS = "tests/integration/aws/test_marks.py::"
_DEAD = "tests/integration/sweep/test_dead_letters.py::"
_STORAGE = "tests/contract/test_dynamodb.py::"

SWEEP = (
    Mutation(
        id="dead-deletion-made-true",
        module=_SWEEP,
        was="update_header(replace(header, kept_until=again), over=header)",
        becomes="update_header(header, over=header)",
        protects="a deletion that was accepted is done, though its message became a dead letter",
        killed_by=(
            f"{_DEAD}test_a_deletion_that_is_a_dead_letter_is_asked_for_again_after_a_day[False]",
        ),
    ),
    Mutation(
        id="dead-deletion-of-another-end",
        module=_SWEEP,
        was=" or header.last_event != message.after:",
        becomes=":",
        protects="a run that was retried is not deleted for its end before",
        killed_by=(
            f"{_DEAD}test_a_deletion_that_is_a_dead_letter_is_asked_for_again_after_a_day[True]",
        ),
    ),
    Mutation(
        id="mark-over-what-was-read",
        module=_SWEEP,
        was="update_header(marked, over=header)",
        becomes="update_header(marked)",
        protects="no run is marked over what a turn has just made good",
        killed_by=(f"{_MARKS}test_the_sweeper_does_not_mark_over_what_a_turn_has_just_made_good",),
    ),
    Mutation(
        id="ended-run-is-not-marked",
        module=_SWEEP,
        was="if header is None or header.status.terminal:",
        becomes="if header is None:",
        protects="a run that has ended is not marked",
        killed_by=(f"{_SWEEPER}test_a_run_that_has_ended_is_not_marked",),
    ),
    Mutation(
        id="blocked-stays-blocked",
        module=_SWEEP,
        was='note = header.note or Attention(kind="STUCK"',
        becomes='note = Attention(kind="STUCK"',
        protects="publishing code wakes the runs that wait for it",
        killed_by=(f"{_SWEEPER}test_a_blocked_run_stays_blocked_and_carries_the_message",),
    ),
    Mutation(
        id="dead-start-made-true",
        module=_SWEEP,
        was="await store.put_header(header_of(message))",
        becomes="header_of(message)",
        protects="a start that became a dead letter is a run",
        killed_by=(f"{_SWEEPER}test_a_dead_start_becomes_a_run_that_is_stuck_and_runs_when_woken",),
    ),
    Mutation(
        id="dead-answer-made-true",
        module=_SWEEP,
        was="await store.decide_hook(message.run_id, message.hook_id, answer(message))",
        becomes="answer(message)",
        protects="an answer that became a dead letter is decided before anybody else can",
        killed_by=(f"{_SWEEPER}test_a_dead_answer_is_decided_before_anybody_else_can",),
    ),
    Mutation(
        id="dead-cancel-made-true",
        module=_SWEEP,
        was="await store.request_cancel(message.run_id)",
        becomes="pass",
        protects="a cancel that became a dead letter is done by the next turn that works",
        killed_by=(
            f"{_MARKS}test_a_cancel_that_became_a_dead_letter_is_done_by_the_next_turn_that_works",
        ),
    ),
    Mutation(
        id="dead-timer-not-early",
        module=_SWEEP,
        was="        if timer.due > self._ports.clock.now():\n            return False\n",
        becomes="",
        protects="no timer from outside comes in through the dead letters before its time",
        killed_by=(
            f"{_SWEEPER}test_what_the_inbox_refused_does_not_come_in_through_its_dead_letters",
        ),
    ),
    Mutation(
        id="stuck-run-is-not-woken",
        module=_SWEEP,
        was='header.note is None or header.note.kind != "STUCK"',
        becomes="header.run_id",
        protects="a stuck run does not fail again at every sweep",
        killed_by=(f"{_SWEEPER}test_a_stuck_run_is_not_woken_for_its_hook",),
    ),
)

LISTS = (
    Mutation(
        id="aws-lagging-run",
        module=_LISTS,
        was="keep=lambda header: _is_due(header, before),",
        becomes="keep=lambda header: bool(header),",
        protects="an entry of an index that lags makes no run overdue",
        killed_by=(f"{_STORAGE}test_an_entry_that_lags_makes_no_run_overdue[update0]",),
    ),
)

MUTATIONS = (*SWEEP, *LISTS)
