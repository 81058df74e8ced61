"""Conditions between runs: parents and children, and runs that go on as new ones."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

_TURN = "engine/turn.py"
_CHILDREN = "engine/children.py"
_CALLS = "engine/child_calls.py"
_CRASH = "tests/simulation/test_crash_everywhere.py::test_a_crash_at_any_port_call_changes_nothing"
_CHILD = "tests/integration/test_children.py::"
_CHAIN = "tests/integration/test_continue_as_new.py::"

MUTATIONS = (
    Mutation(
        id="others-told-again",
        module=_TURN,
        within="Engine._left_ended",
        was="        if not turn.settled:\n",
        becomes="        if False:\n",
        protects="a run that died between its end and telling its parent or successor tells them",
        killed_by=(f"{_CRASH}[held child]", f"{_CRASH}[rounds]"),
    ),
    Mutation(
        id="child-sent-for-again",
        module=_CHILDREN,
        was="    if header is None or header.last_event == 0:\n",
        becomes="    if False:\n",
        protects="a child whose start was recorded and not sent is sent for by the next turn",
        killed_by=(
            f"{_CRASH}[held child]",
            f"{_CHILD}test_a_wake_up_sends_for_a_child_whose_start_was_lost",
        ),
    ),
    Mutation(
        id="child-cancelled-again",
        module=_CHILDREN,
        was='    if child.status == "cancelling":\n',
        becomes="    if False:\n",
        protects="a cancel of a child that was recorded and not sent is sent by the next turn",
        killed_by=(f"{_CRASH}[left children]",),
    ),
    Mutation(
        id="all-children-looked-at-in-doubt",
        module=_CHILDREN,
        within="endings",
        was="    if not turn.settled:\n",
        becomes="    if False:\n",
        protects="a turn after one that died looks at all open children",
        killed_by=(f"{_CHILD}test_a_wake_up_finds_a_child_whose_report_was_lost",),
    ),
    Mutation(
        id="child-not-sent-for-is-not-deleted",
        module=_CHILDREN,
        was="        if child.order > turn.header.last_event:\n",
        becomes="        if False:\n",
        protects="a child that was not sent for yet is not taken for a deleted one",
        killed_by=(f"{_CRASH}[held child]",),
    ),
    Mutation(
        id="deleted-child-is-not-sent-for",
        module=_CHILDREN,
        was="        if child.order > turn.header.last_event:\n",
        becomes="        if True:\n",
        protects="a child that is gone is not started a second time",
        killed_by=(f"{_CHILD}test_a_deleted_child_is_a_named_failure",),
    ),
    Mutation(
        id="report-of-own-child",
        module=_CHILDREN,
        was="if header is not None and header.parent == _link(turn, child):",
        becomes="if header is not None:",
        protects="a message cannot pass another run off as the child",
        killed_by=(f"{_CHILD}test_a_report_that_names_another_run_is_not_believed",),
    ),
    Mutation(
        id="abandoned-child-left-alone",
        module=_CHILDREN,
        was=' if each.on_parent_close == "cancel"]',
        becomes="]",
        protects="a child that is to be abandoned goes on when its parent ends",
        killed_by=(
            f"{_CHILD}test_the_end_of_a_parent_cancels_its_open_children_but_for_abandoned_ones",
        ),
    ),
    Mutation(
        id="child-started-once-per-pass",
        module=_CHILDREN,
        was="pending is not None and pending.command is command",
        becomes="pending is not None",
        protects="a child that is waited for is not started again by the next turn",
        killed_by=(f"{_CHILD}test_who_stops_waiting_through_a_handle_does_not_cancel",),
    ),
    Mutation(
        id="started-child-that-nobody-asked-for-is-left",
        module=_CALLS,
        was="        elif call is not None:  # it was started, and who asked for it had gone\n",
        becomes="        elif False:\n",
        protects="a child whose asker went before it was started is cancelled",
        killed_by=(
            f"{_CHILD}test_a_task_group_cancels_the_child_that_was_started_with_the_refused_one",
        ),
    ),
    Mutation(
        id="report-to-nobody",
        module=_TURN,
        was="        if rows.header is None and isinstance(message, ChildReported):\n",
        becomes="        if False:\n",
        protects="a report to a parent that was deleted is done with",
        killed_by=(f"{_CHILD}test_a_report_to_a_parent_that_is_not_there_is_done_with",),
        hangs=True,
    ),
    Mutation(
        id="cancel-passed-on",
        module=_TURN,
        was="        if turn.state.continued is not None and isinstance(message, CancelRun):\n",
        becomes="        if False:\n",
        protects="a cancel that comes when its run has gone on reaches the next one",
        killed_by=(f"{_CHAIN}test_a_cancel_that_comes_while_a_run_goes_on_is_passed_on",),
    ),
    Mutation(
        id="cancel-seen-before-going-on",
        module=_TURN,
        was="        if isinstance(outcome, Continues) and await continuing.is_cancelled(turn):\n",
        becomes="        if False:\n",
        protects="a run whose cancel was asked for does not go on as a new one",
        killed_by=(f"{_CHAIN}test_a_cancel_that_was_asked_for_goes_before",),
    ),
    Mutation(
        id="cancel-told-instead-of-going-on",
        module=_CALLS,
        was="        if cancel is not None and not self._cancel_told:\n",
        becomes="        if False:\n",
        protects="a cancel that is recorded and not told yet goes before going on",
        killed_by=(f"{_CHAIN}test_a_cancel_recorded_with_the_answer_is_told_instead",),
    ),
    Mutation(
        id="going-on-cannot-be-swallowed",
        module=_CALLS,
        was="        self.outcome = Continues(text, input_digest, context)\n        self._over = True\n",
        becomes="        self._continues = Continues(text, input_digest, context)\n",
        protects="code that catches everything goes on as a new run all the same",
        killed_by=(f"{_CHAIN}test_no_except_and_no_finally_keeps_a_run_from_going_on[def]",),
    ),
    Mutation(
        id="dead-letter-of-an-ended-child",
        module="engine/sweep.py",
        was="        if header.parent is not None or header.continued_to is not None:\n",
        becomes="        if False:\n",
        protects="a parent is told of a child whose last turns died before they could",
        killed_by=(
            "tests/integration/sweep/test_dead_letters.py::test_a_parent_is_told_of_a_child_whose_last_message_is_a_dead_letter",
        ),
    ),
)
