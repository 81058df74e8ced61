"""Conditions of a turn: what is recorded, in which order it becomes durable, who stops for whom."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

_TURN = "engine/turn.py"
_READINESS = "engine/readiness.py"
_RECORDING = "engine/recording.py"
_SETTLE = "engine/settle.py"
_JOURNAL = "engine/journal.py"
_HOOKS = "engine/hooks.py"
_PERFORM = "engine/perform.py"
_DECIDE = "core/decide.py"
_STATE = "core/state.py"
_CRASH = "tests/simulation/test_crash_everywhere.py::test_a_crash_at_any_port_call_changes_nothing"
_FROZEN = "tests/simulation/test_crash_everywhere.py::test_a_frozen_turn_that_thaws"
_YIELD = "tests/simulation/test_ports_that_yield.py::"
_JOURNALS = "tests/unit/engine/test_journal.py::"
_DECISIONS = "tests/unit/core/test_decide.py::"
_DOUBTS = "tests/integration/test_doubts.py::"
_HOOK = "tests/integration/test_workflow_hooks.py::"

JOURNAL = (
    Mutation(
        id="fenced",
        module=_JOURNAL,
        was="        if not stands:\n",
        becomes="        if False:\n",
        protects="whoever lost an event number stops (F4)",
        killed_by=(f"{_JOURNALS}test_the_loser_of_an_event_number_is_fenced_for_good",),
    ),
    Mutation(
        id="unsettled-commit-is-put-again",
        module=_JOURNAL,
        was="            self._unsettled = commit\n",
        becomes="",
        protects="a put whose fate is unknown is made again, and recognises itself",
        killed_by=(f"{_JOURNALS}test_a_flush_that_is_cancelled_does_not_fence_its_own_turn",),
    ),
    Mutation(
        id="one-commit-at-a-time",
        module=_JOURNAL,
        was="            if not self._committing:\n",
        becomes="            if True:\n",
        protects="events that come during a commit leave with the next one",
        killed_by=(
            "tests/unit/engine/test_journal_in_flight.py::test_who_flushes_during_a_commit_waits_for_it_and_leaves_with_the_next",
        ),
    ),
    Mutation(
        id="nothing-after-the-end",
        module=_STATE,
        was='if self.status != "running" and not self._begins_with(event):',
        becomes='if self.status == "new" and not self._begins_with(event):',
        protects="a run ends once, and nothing follows",
        killed_by=("tests/unit/core/test_state.py::test_nothing_follows_the_end",),
    ),
)

LOADING = (
    Mutation(
        id="redelivery-replays",
        module=_TURN,
        was="        extent = Extent.of(turn.state)\n",
        becomes="        if receive_count > 1 and turn.state.started is not None:\n            return TurnEnd.NOTHING\n        extent = Extent.of(turn.state)\n",
        protects="a redelivered message replays and performs (F1)",
        killed_by=(f"{_CRASH}[sequence]",),
    ),
    Mutation(
        id="turn-puts-header",
        module=_READINESS,
        was="if not isinstance(message, StartRun):",
        becomes="if message:",
        protects="a start is sufficient by itself: its caller may have died before the row",
        killed_by=(
            "tests/simulation/test_crash_everywhere.py::test_a_start_whose_caller_dies_for_good_happens_once_it_was_sent[before]",
        ),
    ),
    Mutation(
        id="input-from-header",
        module=_READINESS,
        was="    if header.deleted_at is None:\n",
        becomes="    if isinstance(message, StartRun):\n        header = replace(header, input=message.input, seed=message.seed)\n    if header.deleted_at is None:\n",
        protects="of two starts with one key the turn takes the input whose header stands (F10)",
        killed_by=(
            f"{_DOUBTS}test_of_two_starts_with_one_key_the_input_counts_whose_header_stands",
        ),
    ),
    Mutation(
        id="header-lag-written",
        module=_READINESS,
        was="    await settle.write_header(turn)\n",
        becomes="",
        protects="a header that lags behind an ended log is written before the message goes (F6)",
        killed_by=(f"{_CRASH}[sequence]",),
    ),
    Mutation(
        id="late-rows-closed",
        module=_READINESS,
        was="    await settle.close_late(turn)\n",
        becomes="",
        protects="a row that came after the end takes no answer",
        killed_by=(f"{_DOUBTS}test_a_row_that_comes_after_the_end_is_closed_by_the_next_turn",),
    ),
    Mutation(
        id="no-header-is-given-back",
        module=_READINESS,
        was="if header is None and isinstance(message, ChildReported | ChildNoted):",
        becomes="if header is None and not isinstance(message, StartRun):",
        protects="a message that comes before the header of its run waits for it",
        killed_by=(f"{_DOUBTS}test_a_message_that_comes_before_the_start_of_its_run_waits_for_it",),
    ),
    Mutation(
        id="died-turn-doubted",
        module=_TURN,
        was="        delivered.receive_count == 1\n        and not isinstance(delivered.message, Wake)\n        and header.last_event == state.last\n",
        becomes="        not isinstance(delivered.message, Wake)\n",
        protects="whoever follows a turn that died makes sure of the messages and timers it left out",
        killed_by=(f"{_CRASH}[dispatched]",),
    ),
    Mutation(
        id="wake-doubts-what-stands",
        module=_TURN,
        was="        and not isinstance(delivered.message, Wake)\n",
        becomes="",
        protects="a wake-up sets the timer, and sends the message, that a lost turn did not",
        killed_by=(
            "tests/integration/test_dispatched_races.py::test_a_wake_sends_a_lost_message_again",
        ),
    ),
    Mutation(
        id="mark-doubts-what-stands",
        module=_TURN,
        was="        and header.attention is None\n",
        becomes="",
        protects="the turn that takes a mark off makes sure of what the stuck ones left out",
        killed_by=(f"{_DOUBTS}test_whatever_wakes_a_marked_run_sends_a_lost_attempt_again",),
    ),
    Mutation(
        id="stuck-marked-beforehand",
        module=_TURN,
        was="            await readiness.mark_stuck(self.ports, message.run_id, receive_count)\n",
        becomes="            pass\n",
        protects="a run whose message becomes a dead letter shows it",
        killed_by=(
            "tests/integration/test_local_engine.py::test_a_run_whose_turns_keep_failing_ends_up_marked_as_stuck_and_others_go_on",
        ),
    ),
    Mutation(
        id="mark-keeps-its-message",
        module=_READINESS,
        was="left = None if header.attention is None else header.attention.message",
        becomes="left = None",
        protects="the message on a mark, which is to be found nowhere else, stays on it",
        killed_by=(
            "tests/integration/aws/test_marks.py::test_a_mark_keeps_the_message_of_the_one_before",
        ),
    ),
)

DECIDING = (
    Mutation(
        id="every-decided-row",
        module=_DECIDE,
        within="decide",
        was="    for row in rows:\n        event",
        becomes="    for row in [row for row in rows if getattr(message, 'hook_id', '') == row.hook_id]:\n        event",
        protects="a turn records every decided row, whatever message woke it (F2)",
        killed_by=(f"{_DECISIONS}test_whatever_wakes_a_run_the_same_is_recorded",),
    ),
    Mutation(
        id="won-set-is-recorded",
        module=_RECORDING,
        was="        if row is not None:\n",
        becomes="        if False:\n",
        protects="a turn records what it has just decided, or found decided (F2)",
        killed_by=(f"{_CRASH}[timeouts]",),
    ),
    Mutation(
        id="turn-decides-what-its-message-says",
        module=_DECIDE,
        was="        if isinstance(message, HookDecided) and message.hook_id == row.hook_id:\n            tries[row.hook_id] = answer(message)\n        elif",
        becomes="        if",
        protects="an answer whose caller died before the row is taken",
        killed_by=(
            f"{_DOUBTS}test_an_answer_whose_caller_dies_is_taken_once_it_was_sent[queue.send-after-True]",
        ),
    ),
    Mutation(
        id="answer-before-deadline",
        module=_DECIDE,
        was="        if isinstance(message, HookDecided) and message.hook_id == row.hook_id:\n            tries[row.hook_id] = answer(message)\n        elif row.expires_at is not None and row.expires_at <= now:\n            tries[row.hook_id] = expiry(row)\n",
        becomes="        if row.expires_at is not None and row.expires_at <= now:\n            tries[row.hook_id] = expiry(row)\n        elif isinstance(message, HookDecided) and message.hook_id == row.hook_id:\n            tries[row.hook_id] = answer(message)\n",
        protects="an answer that was promised counts although its deadline has passed since",
        killed_by=(f"{_DECISIONS}test_an_answer_on_its_way_goes_before_the_deadline",),
    ),
    Mutation(
        id="answer-of-its-hook",
        module=_DECIDE,
        was="isinstance(message, HookDecided) and message.hook_id == row.hook_id:",
        becomes="isinstance(message, HookDecided):",
        protects="an answer decides its own hook only",
        killed_by=(f"{_DECISIONS}test_an_answer_decides_its_own_pending_row_only",),
    ),
    Mutation(
        id="deadline-not-early",
        module=_DECIDE,
        was="elif row.expires_at is not None and row.expires_at <= now:",
        becomes="elif row.expires_at is not None:",
        protects="no deadline decides before its time",
        killed_by=(f"{_DECISIONS}test_a_passed_deadline_decides_a_pending_row",),
    ),
    Mutation(
        id="only-pending-is-tried",
        module=_DECIDE,
        was="        if row.status is not HookStatus.PENDING:\n            continue\n",
        becomes="",
        protects="what is decided already is not tried again",
        killed_by=(f"{_DECISIONS}test_an_answer_decides_its_own_pending_row_only",),
    ),
    Mutation(
        id="timer-due-by-its-own-time",
        module=_DECIDE,
        was="return max(now, message.due) if isinstance(message, TimerDue) else now",
        becomes="return now",
        protects="a timer counts as due by the time it carries, not by a slow clock (F9)",
        killed_by=(f"{_DECISIONS}test_a_timer_message_is_due_by_its_own_time",),
    ),
    Mutation(
        id="timer-not-early",
        module=_DECIDE,
        was='if timer.status == "started" and timer.due <= now:',
        becomes='if timer.status == "started":',
        protects="no timer fires early",
        killed_by=(f"{_DECISIONS}test_a_timer_fires_when_it_is_due_and_not_before",),
    ),
    Mutation(
        id="timer-fires-once",
        module=_DECIDE,
        was='if timer.status == "started" and timer.due <= now:',
        becomes="if timer.due <= now:",
        protects="a timer that has fired is not recorded again",
        killed_by=("tests/integration/test_sleep.py::test_two_sleeps_end_each_in_its_time",),
    ),
    Mutation(
        id="recorded-once",
        module=_DECIDE,
        was="            if event.hook in ended:\n                continue\n",
        becomes="",
        protects="a decision that row and attempt both tell of is recorded once",
        killed_by=(
            f"{_DECISIONS}test_an_answer_and_the_outcome_it_overtook_are_both_recorded_once",
        ),
    ),
    Mutation(
        id="told-once",
        module=_DECIDE,
        was="    events = _told_once(state, [event for _, _, event in found])",
        becomes="    events = [event for _, _, event in found]",
        protects="a decision that row and attempt both tell of is recorded once",
        killed_by=(
            f"{_DECISIONS}test_an_answer_and_the_outcome_it_overtook_are_both_recorded_once",
        ),
    ),
    Mutation(
        id="outcome-of-its-attempt",
        module=_DECIDE,
        was="if row.outcome is None or known is None or known.order != row.order:",
        becomes="if row.outcome is None or known is None:",
        protects="what came of another attempt is not taken",
        killed_by=(f"{_DECISIONS}test_what_came_of_another_attempt_is_not_recorded",),
    ),
    Mutation(
        id="cancel-once",
        module=_DECIDE,
        was="if isinstance(message, CancelRun) and state.cancel is None:",
        becomes="if isinstance(message, CancelRun):",
        protects="a cancel is recorded once",
        killed_by=(f"{_DECISIONS}test_a_cancel_comes_last_and_once",),
    ),
    Mutation(
        id="lost-cancel",
        module=_RECORDING,
        was="    if lost is not None:\n",
        becomes="    if False:\n",
        protects="a cancel whose message became a dead letter is done all the same",
        killed_by=(
            "tests/integration/aws/test_marks.py::test_a_cancel_that_became_a_dead_letter_is_done_by_the_next_turn_that_works",
        ),
    ),
    Mutation(
        id="lost-cancel-only-of-the-stuck",
        module=_DECIDE,
        was='if note is None or note.kind != "STUCK" or not header.cancel_requested or state.cancel:',
        becomes="if note is None or not header.cancel_requested or state.cancel:",
        protects="a cancel whose message is on its way waits for it, with who asked and why",
        killed_by=(f"{_DECISIONS}test_otherwise_a_cancel_comes_by_its_message",),
    ),
)

SETTLING = (
    Mutation(
        id="rows-closed-at-the-end",
        module=_SETTLE,
        within="drop_open",
        was="    await _close_rows(turn)\n",
        becomes="",
        protects="before a run ends every open row is closed (F7)",
        killed_by=(f"{_HOOK}test_after_the_run_has_ended_an_answer_is_too_late",),
    ),
    Mutation(
        id="rows-closed-before-the-end",
        module=_SETTLE,
        within="finish",
        was="    await drop_open(turn)\n    turn.journal.record(await _last_event(turn, workflow, outcome))\n    await turn.journal.flush()\n",
        becomes="    turn.journal.record(await _last_event(turn, workflow, outcome))\n    await turn.journal.flush()\n    await drop_open(turn)\n",
        protects="open rows are closed before the terminal event, not after it (F7)",
        killed_by=(f"{_CRASH}[race]",),
    ),
    Mutation(
        id="decided-row-recorded-first",
        module=_HOOKS,
        within="_close",
        was="        record_decision(turn, row)\n",
        becomes="        pass\n",
        protects="a row found decided while it is closed is recorded (F7)",
        killed_by=(f"{_CRASH}[race]",),
    ),
    Mutation(
        id="flush-before-rows-are-closed",
        module=_HOOKS,
        within="close_all",
        was="if pending and turn.journal.behind:",
        becomes="if False:",
        protects="what made a hook unwanted is durable before its row is closed",
        killed_by=(f"{_CRASH}[race]",),
    ),
    Mutation(
        id="flush-before-the-end",
        module=_SETTLE,
        within="finish",
        was="    await turn.journal.flush()\n    await write_header(turn)\n",
        becomes="    await write_header(turn)\n    await turn.journal.flush()\n",
        protects="a header never says more than the log",
        killed_by=(f"{_DOUBTS}test_wherever_a_turn_dies_the_header_is_not_ahead_of_the_log",),
    ),
    Mutation(
        id="flush-before-the-timer",
        module=_SETTLE,
        within="suspend",
        was="    await turn.journal.flush()\n    await set_alarm(turn, before, turn.state.next_alarm())\n    await noting.tell_parent(turn)\n    await write_header(turn, note)\n",
        becomes="    await set_alarm(turn, before, turn.state.next_alarm())\n    await noting.tell_parent(turn)\n    await write_header(turn, note)\n    await turn.journal.flush()\n",
        protects="a header says SUSPENDED only when the log does",
        killed_by=(f"{_DOUBTS}test_wherever_a_turn_dies_the_header_is_not_ahead_of_the_log",),
    ),
    Mutation(
        id="timer-before-header",
        module=_SETTLE,
        within="suspend",
        was="    await set_alarm(turn, before, turn.state.next_alarm())\n    await noting.tell_parent(turn)\n    await write_header(turn, note)\n",
        becomes="    await write_header(turn, note)\n    await set_alarm(turn, before, turn.state.next_alarm())\n    await noting.tell_parent(turn)\n",
        protects="a header that agrees with the log says that the timer is set",
        killed_by=(f"{_DOUBTS}test_a_turn_sets_its_timer_before_its_header_says_so",),
    ),
    Mutation(
        id="timer-set-in-doubt",
        module=_SETTLE,
        was="if after is not None and (after != before or not turn.settled):",
        becomes="if after is not None and after != before:",
        protects="a turn that doubts the last one sets the timer again",
        killed_by=(f"{_CRASH}[sleep]",),
    ),
    Mutation(
        id="timer-needed-again",
        module=_SETTLE,
        was="if before is not None and before not in set(turn.state.alarms()):",
        becomes="if before is not None and before != after:",
        protects="a thawed turn does not stop the timer that its successor needs",
        killed_by=(f"{_YIELD}test_a_thawed_turn_does_not_stop_the_timer_that_its_successor_needs",),
    ),
    Mutation(
        id="header-over-what-was-read",
        module=_SETTLE,
        within="_update",
        was="update_header(header, over=turn.header)",
        becomes="update_header(header)",
        protects="a turn does not clear a note that came while it went on",
        killed_by=(
            "tests/integration/aws/test_marks.py::test_a_turn_does_not_clear_a_mark_that_came_while_it_went_on",
        ),
    ),
    Mutation(
        id="header-lost-is-fenced",
        module=_SETTLE,
        within="_update",
        was='        raise Fenced(f"the header of run {turn.run_id!r} is further on, or was marked meanwhile")',
        becomes="        return",
        protects="a turn that cannot write its header gives its message back",
        killed_by=(
            "tests/integration/aws/test_marks.py::test_a_turn_does_not_clear_a_mark_that_came_while_it_went_on",
        ),
    ),
    Mutation(
        id="continue-from-its-message",
        module=_SETTLE,
        was="cause=turn.message_id, ",
        becomes='cause="continue", ',
        protects="the queue does not swallow the second continue of a run (F11)",
        killed_by=(
            "tests/integration/test_time_left.py::test_however_little_time_is_left_each_turn_begins_something",
        ),
    ),
    Mutation(
        id="blocked-records-decisions",
        module=_SETTLE,
        within="block",
        was="    await turn.journal.flush()\n",
        becomes="",
        protects="a blocked run keeps what its messages brought",
        killed_by=(
            "tests/integration/test_dispatched_races.py::test_a_blocked_run_takes_what_its_attempts_report",
        ),
    ),
    Mutation(
        id="puts-settled",
        module="engine/passes.py",
        was="        await turn.puts.settle()\n",
        becomes="",
        protects="no run settles while a hook's put is under way",
        killed_by=(f"{_YIELD}test_no_hook_is_left_open_by_a_put_that_outlasts_whoever_asked",),
    ),
    Mutation(
        id="puts-that-failed",
        module="engine/puts.py",
        was="        for error in await self.close():\n            raise error\n",
        becomes="        await self.close()\n",
        protects="a run does not end while the fate of a put is unknown",
        killed_by=(f"{_YIELD}test_a_run_does_not_end_while_the_fate_of_a_put_is_unknown",),
    ),
)

EFFECTS = (
    Mutation(
        id="flush-before-steps",
        module=_PERFORM,
        was="        if ready or dispatched:\n            await self._settle_before()\n",
        becomes="",
        protects="what led to a step is durable before its body runs",
        killed_by=(f"{_DOUBTS}test_what_led_to_a_step_is_durable_when_its_body_begins",),
    ),
    Mutation(
        id="flush-before-hooks",
        module=_HOOKS,
        within="put_row",
        was="    if turn.journal.behind:\n        await turn.journal.flush()\n",
        becomes="",
        protects="what led to a hook is durable before its row lets the world in",
        killed_by=(f"{_YIELD}test_what_led_to_a_hook_is_durable_before_its_row_is_put",),
    ),
    Mutation(
        id="redelivered-attempts-count",
        module=_PERFORM,
        was="if self._turn.overtakes or entry.command.step.at_most_once:",
        becomes="if entry.command.step.at_most_once:",
        protects="attempts are counted when a message comes again: a step that kills ends",
        killed_by=(
            "tests/integration/test_steps.py::test_a_step_whose_process_always_dies_is_given_up",
        ),
    ),
    Mutation(
        id="standing-row-adopted",
        module=_HOOKS,
        was="    standing = await turn.ports.store.put_hook(row)\n",
        becomes="    await turn.ports.store.put_hook(row)\n    standing = row\n",
        protects="whoever loses a hook's put takes over the row it finds (F3)",
        killed_by=(f"{_DOUBTS}test_wherever_a_turn_dies_a_hook_keeps_the_deadline_of_its_row",),
    ),
    Mutation(
        id="unnotified-hook-as-its-row-says",
        module="engine/openings.py",
        was="        event = None if standing is None else hooks.decision_event(self._turn, standing)\n",
        becomes="        event = None if standing is None else hooks.decision_event(self._turn, row)\n",
        protects="a hook that could not be notified is recorded as its row says, answered or not",
        killed_by=(f"{_CRASH}[unnotified]",),
    ),
    Mutation(
        id="checkpoint-overtaken",
        module="engine/step_runner.py",
        was="        if not await turn.ports.store.put_checkpoint(checkpoint):\n",
        becomes="        if await turn.ports.store.put_checkpoint(checkpoint) is None:\n",
        protects="an entry that was overtaken stops at its next checkpoint",
        killed_by=(f"{_YIELD}test_an_entry_whose_checkpoint_a_later_turn_saved_is_fenced",),
    ),
    Mutation(
        id="checkpoint-of-what-is-durable",
        module="engine/step_runner.py",
        was="last_event=turn.journal.durable,",
        becomes="last_event=turn.state.last,",
        protects="whoever takes over from a dead turn is not behind its checkpoint",
        killed_by=(f"{_DOUBTS}test_a_checkpoint_is_no_further_on_than_the_log",),
    ),
    Mutation(
        id="chunk-overtaken",
        module="engine/output.py",
        was="        if not await self._turn.ports.store.put_chunk(chunk):\n",
        becomes="        if await self._turn.ports.store.put_chunk(chunk) is None:\n",
        protects="an entry that was overtaken stops at its next chunk",
        killed_by=(f"{_YIELD}test_an_entry_whose_chunk_another_turn_has_written_is_fenced",),
    ),
    Mutation(
        id="output-of-a-later-turn",
        module="engine/output.py",
        was="            if rows and rows[-1].last_event > self._turn.journal.durable:\n",
        becomes="            if False:\n",
        protects="a frozen turn does not go on behind the output of a later one",
        killed_by=(
            "tests/integration/test_overtaken_turns.py::test_an_overtaken_step_has_no_effect[output-False]",
        ),
    ),
)

MUTATIONS = (*JOURNAL, *LOADING, *DECIDING, *SETTLING, *EFFECTS)
