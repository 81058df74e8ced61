"""Conditions between runs: parents and children, and runs that go on as new ones."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

_TURN = "engine/turn.py"
_READINESS = "engine/readiness.py"
_CHILDREN = "engine/children.py"
_CALLS = "engine/child_calls.py"
_CRASH = "tests/simulation/test_crash_everywhere.py::test_a_crash_at_any_port_call_changes_nothing"
_CHILD = "tests/integration/test_children.py::"
_CHAIN = "tests/integration/test_continue_as_new.py::"
_BEGINS = "tests/integration/test_children_begin_with.py::"
_SCRIPTS = "tests/integration/test_scripts.py::"
_TOGETHER = "tests/integration/test_together.py::"

MUTATIONS = (
    Mutation(
        id="links-of-a-child-are-followed-for-good",
        module="core/records.py",
        was="kept_until=None if followed else at + REMEMBERED,",
        becomes="kept_until=at + REMEMBERED,",
        protects="a parent does not take a chain that goes on for missing",
        killed_by=(
            f"{_CHAIN}test_a_parent_finds_the_last_link_though_others_were_deleted_long_ago[1]",
        ),
    ),
    Mutation(
        id="links-without-a-parent-are-forgotten",
        module="core/records.py",
        was="followed = header.continued_to is not None and header.parent is not None",
        becomes="followed = header.continued_to is not None",
        protects="tombstones are kept only where somebody counts on them",
        killed_by=(f"{_CHAIN}test_a_link_that_nobody_follows_is_forgotten",),
    ),
    Mutation(
        id="others-told-again",
        module=_READINESS,
        within="_leave_ended",
        was="    if not turn.settled:\n",
        becomes="    if False:\n",
        protects="a run that died between its end and telling its parent or successor tells them",
        killed_by=(f"{_CRASH}[held child]", f"{_CRASH}[rounds]"),
    ),
    Mutation(
        id="child-sent-for-again",
        module=_CHILDREN,
        was="    if header is None or header.last_event == child.after:\n",
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
        was="ours = header is not None and header.parent == _link(turn, child)",
        becomes="ours = header is not None",
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
        module=_READINESS,
        was="    if header is None and isinstance(message, ChildReported | ChildNoted):\n",
        becomes="    if False:\n",
        protects="a report to a parent that was deleted is done with",
        killed_by=(f"{_CHILD}test_a_report_to_a_parent_that_is_not_there_is_done_with",),
        hangs=True,
    ),
    Mutation(
        id="cancel-passed-on",
        module="engine/continuing.py",
        was="    if isinstance(message, CancelRun):\n",
        becomes="    if False:\n",
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
        was="            await self._have_others_told(run_id)\n",
        becomes="            pass\n",
        protects="a parent is told of a child whose last turns died before they could",
        killed_by=(
            "tests/integration/sweep/test_dead_letters.py::test_a_parent_is_told_of_a_child_whose_last_message_is_a_dead_letter",
            "tests/integration/sweep/test_dead_letters.py::test_children_are_told_of_a_parent_whose_last_message_is_a_dead_letter",
        ),
    ),
    Mutation(
        id="children-told-of-an-end-before-the-retry",
        module=_READINESS,
        was="        await settle.tell_others(run.turn)  # of this end, which the log forgets then\n",
        becomes="        pass\n",
        protects="a retry leaves no child running that the end before was to cancel",
        killed_by=(f"{_TOGETHER}test_a_retry_leaves_no_child_that_its_end_was_to_cancel",),
    ),
    Mutation(
        id="report-of-another-life",
        module=_CHILDREN,
        was=" and ours and (first or header.run_id == child.run_id):",
        becomes=" and ours:",
        protects="a child of the life before that ends late is not taken for the one started anew",
        killed_by=(
            f"{_TOGETHER}test_a_child_of_the_life_before_that_ends_late_is_not_the_one_that_is_waited_for",
        ),
    ),
    Mutation(
        id="context-of-a-child-identifies-it",
        module="authoring/children.py",
        was="    if context is not None:\n",
        becomes="    if False:\n",
        protects="a child is not taken for one that was started with another context",
        killed_by=(f"{_BEGINS}test_another_context_is_another_child",),
    ),
    Mutation(
        id="named-context-of-a-child-identifies-it",
        module="authoring/children.py",
        was="    if begun is not None:\n",
        becomes="    if False:\n",
        protects="a child by name is not taken for one that was started with another context",
        killed_by=(f"{_BEGINS}test_another_context_by_name_is_another_child",),
    ),
    Mutation(
        id="guards-of-a-child",
        module=_CHILDREN,
        was="guards if options.guards is None else options.guards.over(guards)",
        becomes="None if options.guards is None else options.guards.over(guards)",
        protects="what guards a run guards what it starts",
        killed_by=(
            f"{_BEGINS}test_a_child_has_the_guards_of_its_parent_unless_it_is_told_otherwise",
        ),
    ),
    Mutation(
        id="guards-of-children-that-nobody-knows",
        module="adapters/local/scripts.py",
        was="            if guards is not None and not _are_known(guards):\n",
        becomes="            if False:\n",
        protects="a script whose process is gone can be resumed with its children",
        killed_by=(f"{_SCRIPTS}test_guards_of_a_resume_reach_children_whose_own_nobody_knows",),
    ),
    Mutation(
        id="guards-passed-on",
        module="engine/continuing.py",
        was="    elif isinstance(message, LookAgain) and message.change is not None:\n",
        becomes="    elif False:\n",
        protects="other guards that were accepted reach the run that goes on",
        killed_by=(f"{_TOGETHER}test_other_guards_reach_a_run_that_goes_on_meanwhile",),
    ),
    Mutation(
        id="entries-passed-on",
        module="engine/continuing.py",
        was="    elif isinstance(message, InboxPut):\n",
        becomes="    elif False:\n",
        protects="an entry that was accepted reaches the run that goes on",
        killed_by=(
            f"{_TOGETHER}test_an_entry_whose_sender_died_reaches_a_run_that_goes_on_meanwhile",
        ),
    ),
    Mutation(
        id="pause-passed-on",
        module=_READINESS,
        was="    if turn.state.continued is not None and turn.header.paused:\n",
        becomes="    if False:\n",
        protects="a pause that was accepted while its run went on holds the next one",
        killed_by=(f"{_TOGETHER}test_a_pause_reaches_a_run_that_goes_on_meanwhile",),
    ),
    Mutation(
        id="begins-with-its-inbox",
        module="core/state.py",
        was="    if event.first and state.last in (1, state.epoch):\n",
        becomes="    if False:\n",
        protects="a run that goes on has at its beginning what its inbox held",
        killed_by=(f"{_TOGETHER}test_a_run_begins_with_the_inbox_that_it_was_handed",),
    ),
    Mutation(
        id="dead-entry-is-put",
        module="engine/sweep.py",
        was="                await store.put_inbox(entry_of(message))\n",
        becomes="                pass\n",
        protects="an entry that was accepted is there, though its message is a dead letter",
        killed_by=(
            "tests/integration/sweep/test_dead_letters.py::test_of_two_dead_entries_none_is_lost",
        ),
    ),
)
