"""Conditions of the engine of streams: numbering, taking, ending, telling others, snapshots."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

_SEQUENCING = "engine/sequencing.py"
_STATE = "core/stream_state.py"
_NUMBERS = "tests/unit/engine/test_sequencing.py::"
_TAKING = "tests/unit/streams/test_matching.py::"
_WAITING = "tests/unit/engine/test_waiting_signals.py::"
_FOLD = "tests/unit/core/test_stream_state.py::"
_DECISIONS = "tests/unit/core/test_stream_decisions.py::"
_MANY = "tests/integration/streams/test_many_in_one_turn.py::"
_CRASH = "tests/simulation/test_crash_everywhere.py::test_a_crash_at_any_port_call_changes_nothing"
_TWICE = (
    "tests/simulation/test_crash_everywhere.py::test_a_message_that_comes_twice_changes_nothing"
)
_ALONE = "test_whoever_dies_and_is_followed_by_the_same_signals_alone"

SUBSCRIPTIONS = (
    Mutation(
        id="numbers-known-ids",
        module=_SEQUENCING,
        was="[s for s in wanted.values() if s.signal_id not in known]",
        becomes="[*wanted.values()]",
        protects="a signal that comes twice has one number",
        killed_by=(f"{_NUMBERS}test_what_comes_again_has_the_number_that_it_had[again2]",),
    ),
    Mutation(
        id="numbers-adopted",
        module=_SEQUENCING,
        was="[each for each in left if each.signal_id not in standing]",
        becomes="[*left]",
        protects="whoever loses a number numbers only what the winner has not",
        killed_by=(f"{_NUMBERS}test_a_batch_of_somebody_else_under_the_next_number_is_adopted",),
    ),
    Mutation(
        id="head-left-behind",
        module=_SEQUENCING,
        was="if max(known.values(), default=0) > last:",
        becomes="if False:",
        protects="a head that a dead consumer has not moved is moved by the next one",
        killed_by=(f"{_NUMBERS}{_ALONE}[before]",),
    ),
    Mutation(
        id="numbers-remembered",
        module=_SEQUENCING,
        was="                await self._remember(key, batch.numbered())\n",
        becomes="",
        protects="a signal that comes when the queue has forgotten it is known",
        killed_by=(f"{_NUMBERS}test_signals_are_numbered_in_their_order_whatever_their_count",),
    ),
    Mutation(
        id="numbers-adopted-remembered",
        module=_SEQUENCING,
        was="            await self._remember(key, found)\n",
        becomes="",
        protects="what a dead consumer has numbered and not remembered is remembered",
        killed_by=(f"{_NUMBERS}test_whoever_dies_at_any_call_is_made_up_for_by_the_next[before]",),
    ),
    Mutation(
        id="told-of-known-ones",
        module=_SEQUENCING,
        was="max([*told, *known.values(), 0])",
        becomes="max([*told, 0])",
        protects="subscriptions are woken for what a dead consumer has numbered",
        killed_by=(f"{_NUMBERS}{_ALONE}[after]",),
    ),
    Mutation(
        id="told-of-types-that-came",
        module=_SEQUENCING,
        was="types = {*told.values(), *(signal.type for signal in wanted.values())}",
        becomes="types = {*told.values()}",
        protects="subscriptions are woken when all that came was numbered before",
        killed_by=(f"{_NUMBERS}{_ALONE}[after]",),
    ),
    Mutation(
        id="ended-ones-rest",
        module=_SEQUENCING,
        was="if not row.ended and self._takes(row, types)]",
        becomes="if self._takes(row, types)]",
        protects="nobody wakes a subscription that has ended",
        killed_by=(f"{_NUMBERS}test_those_are_woken_who_take_such_signals_and_have_not_ended",),
    ),
    Mutation(
        id="ahead-passed-over",
        module="streams/matching.py",
        was="if each.sequence <= known.cursor or each.sequence in known.ahead:",
        becomes="if each.sequence <= known.cursor:",
        protects="what was taken ahead of held signals is not taken again",
        killed_by=(f"{_TAKING}test_what_is_settled_is_passed_over",),
    ),
    Mutation(
        id="held-while-suspended",
        module="streams/matching.py",
        was="if not suspended or kind in wanted:",
        becomes="if True:",
        protects="a suspended subscription takes only what resumes it",
        killed_by=(
            f"{_TAKING}test_a_suspended_one_takes_what_resumes_it_ahead_of_those_that_it_holds[ab-expected1]",
        ),
    ),
    Mutation(
        id="held-before-is-held",
        module="streams/matching.py",
        was="held = suspended and known.held > known.cursor",
        becomes="held = False",
        protects="what was held when it was looked at last is not settled by what comes ahead of it",
        killed_by=(f"{_TAKING}test_it_does_not_look_again_at_what_it_holds_but_knows_of_it",),
    ),
    Mutation(
        id="pages-to-the-last",
        module="engine/waiting_signals.py",
        was="(number >= last and self._is_full)",
        becomes="False",
        protects="signals behind a page are found",
        killed_by=(f"{_WAITING}test_all_are_found_whatever_the_pages_and_batches[101-10]",),
    ),
    Mutation(
        id="pages-from-the-held",
        module="engine/waiting_signals.py",
        was="number < self._after or ",
        becomes="",
        protects="what was held on an earlier page is found when the subscription goes on",
        killed_by=(f"{_WAITING}test_those_that_were_held_come_in_order_once_it_goes_on",),
    ),
    Mutation(
        id="redriven-moves-nothing",
        module=_STATE,
        was="if at <= known.cursor or at in known.ahead:",
        becomes="if False:",
        protects="a redriven signal does not settle others",
        killed_by=(
            f"{_FOLD}test_what_was_parked_ahead_of_held_ones_settles_none_of_them_when_it_is_redriven",
        ),
    ),
    Mutation(
        id="taken-while-parked",
        module=_STATE,
        was="        if parked is None:\n",
        becomes="        if False:\n",
        protects="only a parked signal is redriven",
        killed_by=(f"{_FOLD}test_what_cannot_follow_is_refused[events6-signal 1 is not parked]",),
    ),
    Mutation(
        id="snapshot-has-guards",
        module=_STATE,
        was="        state.guards = held.guards\n",
        becomes="        state.guards = held.started.guards\n",
        protects="a subscription keeps the guards that it was given later",
        killed_by=(
            f"{_FOLD}test_who_reads_from_a_snapshot_comes_to_what_he_comes_to_who_reads_all[3]",
        ),
    ),
    Mutation(
        id="retry-is-over",
        module="core/waiting.py",
        was="return None if due is None or due <= self.at else due",
        becomes="return due",
        protects="a signal that is tried again can wait for a time",
        killed_by=(
            f"{_FOLD}test_a_retry_is_due_and_its_attempt_counts",
            f"{_MANY}test_what_is_tried_again_can_wait_for_a_time_after_that",
        ),
    ),
    Mutation(
        id="rows-of-signals-before",
        module="engine/turn_context.py",
        was="for row in rows if is_of(self.state, row.hook_id, row.step)}",
        becomes="for row in rows}",
        protects="an answer to an earlier signal is not one to this",
        killed_by=(f"{_MANY}test_a_signal_that_fails_knows_nothing_of_hooks_of_the_one_before",),
    ),
    Mutation(
        id="puts-of-each-signal",
        module="engine/subscriptions.py",
        was="turn = self._turn = replace(self._turn, puts=Puts())",
        becomes="turn = self._turn",
        protects="each signal of a turn can have hooks",
        killed_by=(f"{_MANY}test_the_second_signal_of_a_turn_can_wait_for_a_hook",),
    ),
    Mutation(
        id="older-word-of-a-child",
        module="core/decide.py",
        was="        if message.order <= child.told:\n",
        becomes="        if False:\n",
        protects="a word of a child that comes late is not taken for its last",
        killed_by=(
            f"{_DECISIONS}test_an_old_word_of_a_child_and_one_of_another_run_change_nothing[message0]",
        ),
    ),
    Mutation(
        id="word-of-another-run",
        module="core/decide.py",
        was="child is None or not child.open or child.run_id != message.child_run",
        becomes="child is None or not child.open",
        protects="a run that was started under an id before says nothing of the one there now",
        killed_by=(
            f"{_DECISIONS}test_an_old_word_of_a_child_and_one_of_another_run_change_nothing[message2]",
        ),
    ),
    Mutation(
        id="mended-once",
        module="core/decide.py",
        was="parked is None or message.request_id in known.requests",
        becomes="parked is None",
        protects="one request redrives a signal once",
        killed_by=(f"{_DECISIONS}test_a_request_that_comes_twice_is_one",),
    ),
    Mutation(
        id="outbox-after-a-crash",
        module="engine/turn.py",
        was="            outbox.put_unsent(numbered(rows.commits), header.last_event)\n",
        becomes="            pass\n",
        protects="a signal whose emitter died before it was sent is sent by the next turn",
        killed_by=(f"{_CRASH}[game]",),
    ),
    Mutation(
        id="outbox-durable",
        module="engine/outbox.py",
        was="[event for number, event in self._left if number <= durable]",
        becomes="[event for number, event in self._left]",
        protects="no signal is sent before the event that says so stands",
        killed_by=(
            "tests/unit/engine/test_outbox.py::test_a_signal_whose_event_is_not_durable_stays",
        ),
    ),
    Mutation(
        id="woken-in-doubt",
        module="engine/turn.py",
        was="isinstance(message, SignalsArrived) and receive_count == 1",
        becomes="isinstance(message, SignalsArrived)",
        protects="whoever follows a turn that died looks at what it left",
        killed_by=(f"{_CRASH}[reviewing]",),
    ),
)
