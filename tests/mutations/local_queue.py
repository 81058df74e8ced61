"""Conditions of the embedded queues and timers: groups, visibility, receipts, receive counts."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

_SCRIPTS = "tests/integration/test_scripts.py::"
_QUEUE = "adapters/local/queue.py"
_STEPS = "adapters/local/step_queue.py"
_TIMERS = "adapters/local/timers.py"
_RUNTIME = "adapters/local/runtime.py"
_LAWS = "tests/contract/test_queue.py::"
_STEP_LAWS = "tests/contract/test_step_queue.py::"
_TIMER_LAWS = "tests/contract/test_timers.py::"
_OWN = "tests/contract/test_sqlite.py::"
_BETWEEN = "tests/contract/test_local_conditions.py::"
_DOUBTS = "tests/integration/test_doubts.py::"
_ENGINE = "tests/integration/test_local_engine.py::"

QUEUE = (
    Mutation(
        id="local-queue-equal-bodies",
        module=_QUEUE,
        was="ON CONFLICT (run_id, sha256) DO NOTHING",
        becomes="ON CONFLICT (run_id, sha256) DO UPDATE SET sha256 = excluded.sha256",
        protects="equal bodies within five minutes are one message",
        killed_by=(f"{_LAWS}test_equal_bodies_within_five_minutes_are_one[memory]",),
    ),
    Mutation(
        id="local-queue-window-ends",
        module=_QUEUE,
        was="DELETE FROM sent_bodies WHERE until <= ?",
        becomes="DELETE FROM sent_bodies WHERE until <= ? AND false",
        protects="the same body is another message after five minutes",
        killed_by=(f"{_LAWS}test_a_dropped_body_does_not_prolong_the_window[memory]",),
    ),
    Mutation(
        id="local-queue-window-lasts",
        module=_QUEUE,
        was="DELETE FROM sent_bodies WHERE until <= ?",
        becomes="DELETE FROM sent_bodies WHERE ? IS NOT NULL",
        protects="a body is remembered for five minutes",
        killed_by=(f"{_LAWS}test_equal_bodies_within_five_minutes_are_one[memory]",),
    ),
    Mutation(
        id="local-queue-one-in-flight",
        module=_QUEUE,
        was="CASE WHEN EXISTS (SELECT 1 FROM messages WHERE run_id = ?) THEN NULL ELSE ? END",
        becomes="CASE WHEN ? IS NULL THEN NULL ELSE ? END",
        protects="a run has one turn at a time, in the order of its messages",
        killed_by=(f"{_LAWS}test_one_message_of_a_group_is_in_flight[memory]",),
    ),
    Mutation(
        id="local-queue-own-group",
        module=_QUEUE,
        was="CASE WHEN EXISTS (SELECT 1 FROM messages WHERE run_id = ?)",
        becomes="CASE WHEN EXISTS (SELECT 1 FROM messages WHERE ? IS NOT NULL)",
        protects="no run waits for the messages of another",
        killed_by=(f"{_LAWS}test_odd_run_ids_are_groups_of_their_own[memory]",),
    ),
    Mutation(
        id="local-queue-visible",
        module=_QUEUE,
        was="FROM messages\nWHERE visible_at <= ? ORDER",
        becomes="FROM messages\nWHERE visible_at IS NOT NULL AND ? IS NOT NULL ORDER",
        protects="a message that is being worked on, or was given back for later, does not come",
        killed_by=(f"{_LAWS}test_a_message_given_back_with_a_delay_holds_its_group[memory]",),
    ),
    Mutation(
        id="local-queue-visible-to-known",
        module=_QUEUE,
        was="WHERE visible_at <= ? AND NOT EXISTS",
        becomes="WHERE visible_at IS NOT NULL AND ? IS NOT NULL AND NOT EXISTS",
        protects="the same for an engine that knows some workflows",
        killed_by=(
            f"{_BETWEEN}test_a_message_given_back_for_later_stays_away_from_who_knows_its_workflow",
        ),
    ),
    Mutation(
        id="local-queue-known-workflows",
        module=_QUEUE,
        was=" AND NOT EXISTS (\n    SELECT 1 FROM runs WHERE runs.run_id = messages.run_id\n    AND runs.workflow NOT IN (SELECT value FROM json_each(?)))",
        becomes=" AND ? IS NOT NULL",
        protects="a run is left to processes that know its workflow",
        killed_by=(f"{_BETWEEN}test_runs_of_unknown_workflows_hold_nobody_up",),
    ),
    Mutation(
        id="local-queue-workflow-of-the-run",
        module=_QUEUE,
        was="WHERE runs.run_id = messages.run_id\n    AND runs.workflow",
        becomes="WHERE runs.workflow",
        protects="a run of an unknown workflow holds up nobody else",
        killed_by=(f"{_BETWEEN}test_runs_of_unknown_workflows_hold_nobody_up",),
    ),
    Mutation(
        id="local-queue-workflow-unknown",
        module=_QUEUE,
        was="AND runs.workflow NOT IN (SELECT value FROM json_each(?))",
        becomes="AND ? IS NOT NULL",
        protects="a run of a known workflow is taken",
        killed_by=(f"{_BETWEEN}test_runs_of_unknown_workflows_hold_nobody_up",),
    ),
    Mutation(
        id="local-queue-of-these-runs",
        module=_QUEUE,
        was="WHERE visible_at <= ? AND run_id IN (SELECT value FROM json_each(?))",
        becomes="WHERE visible_at <= ? AND ? IS NOT NULL",
        protects="a script leaves the runs of others alone",
        killed_by=(f"{_SCRIPTS}test_other_runs_on_the_file_are_left_alone",),
    ),
    Mutation(
        id="local-step-queue-of-these-runs",
        module=_STEPS,
        was="WHERE visible_at <= ? AND run_id IN (SELECT value FROM json_each(?))",
        becomes="WHERE visible_at <= ? AND ? IS NOT NULL",
        protects="a script leaves dispatched steps of others alone",
        killed_by=(f"{_SCRIPTS}test_other_runs_on_the_file_are_left_alone",),
    ),
    Mutation(
        id="local-script-makes-no-file",
        module="adapters/local/scripts.py",
        was="if not isinstance(run_id, str) or not path.exists():",
        becomes="if not isinstance(run_id, str):",
        protects="a run that is not there is looked for, and nothing is made",
        killed_by=(f"{_SCRIPTS}test_a_run_that_is_not_there_is_said_not_to_be[absent]",),
    ),
    Mutation(
        id="local-queue-is-done",
        module=_QUEUE,
        was="FROM messages WHERE run_id IN (SELECT value FROM json_each(?))",
        becomes="FROM messages WHERE ? IS NULL",
        protects="a script waits for messages of its run that another process holds",
        killed_by=(f"{_SCRIPTS}test_a_run_that_another_process_holds_is_waited_for",),
    ),
    Mutation(
        id="local-queue-taken-is-invisible",
        module=_QUEUE,
        was="return self._take(place, now)",
        becomes="return self._take(place, now - self._visibility)",
        protects="a received message stays away from others",
        killed_by=(f"{_LAWS}test_one_message_of_a_group_is_in_flight[memory]",),
    ),
    Mutation(
        id="local-queue-counts",
        module=_QUEUE,
        was="receive_count = receive_count + 1",
        becomes="receive_count = receive_count",
        protects="receives are counted: a redelivery is known as one, and an end comes to it",
        killed_by=(f"{_LAWS}test_a_message_that_is_not_deleted_comes_again[memory]",),
    ),
    Mutation(
        id="local-queue-too-often",
        module=_QUEUE,
        was="if count < self._max_receive_count:",
        becomes="if count <= self._max_receive_count:",
        protects="what was received too often becomes a dead letter",
        killed_by=(f"{_LAWS}test_a_message_received_too_often_becomes_a_dead_letter",),
    ),
    Mutation(
        id="local-queue-stale-count",
        module=_QUEUE,
        was="AND receive_count = ? AND message_id",
        becomes="AND ? IS NOT NULL AND message_id",
        protects="the receipt of an earlier receive deletes nothing",
        killed_by=(f"{_LAWS}test_a_stale_receipt_has_no_effect[memory]",),
    ),
    Mutation(
        id="local-queue-stale-place",
        module=_QUEUE,
        was="AND message_id = ? AND visible_at > ?",
        becomes="AND ? IS NOT NULL AND visible_at > ?",
        protects="the receipt of a deleted message does not hold the one that took its place",
        killed_by=(f"{_LAWS}test_a_receipt_is_spent_once_its_message_was_deleted[memory]",),
    ),
    Mutation(
        id="local-queue-stale-time",
        module=_QUEUE,
        was="AND message_id = ? AND visible_at > ?",
        becomes="AND message_id = ? AND ? IS NOT NULL",
        protects="a receipt ends with the visibility timeout",
        killed_by=(f"{_OWN}test_a_receipt_ends_with_the_visibility_timeout",),
    ),
    Mutation(
        id="local-queue-delete-held",
        module=_QUEUE,
        within="SqliteQueue.delete",
        was="place = self._held(delivery, now)",
        becomes='place = self._held(delivery, now) or int(delivery.receipt.partition(".")[0])',
        protects="a stale receipt deletes nothing",
        killed_by=(f"{_LAWS}test_a_stale_receipt_has_no_effect[memory]",),
    ),
    Mutation(
        id="local-queue-postpone-held",
        module=_QUEUE,
        within="SqliteQueue.postpone",
        was="place = self._held(delivery, now)",
        becomes='place = self._held(delivery, now) or int(delivery.receipt.partition(".")[0])',
        protects="a stale receipt gives nothing back",
        killed_by=(f"{_LAWS}test_a_stale_receipt_has_no_effect[memory]",),
    ),
    Mutation(
        id="local-queue-reject-held",
        module=_QUEUE,
        within="SqliteQueue.reject",
        was="place = self._held(delivery, now)",
        becomes='place = self._held(delivery, now) or int(delivery.receipt.partition(".")[0])',
        protects="a stale receipt rejects nothing",
        killed_by=(f"{_LAWS}test_a_stale_receipt_has_no_effect[memory]",),
    ),
    Mutation(
        id="local-queue-promote",
        module=_QUEUE,
        was="        self.database.change(_PROMOTE, now, run_id)\n",
        becomes="",
        protects="what stands behind a message that is gone can come",
        killed_by=(f"{_LAWS}test_a_group_keeps_its_order[memory]",),
    ),
    Mutation(
        id="local-queue-promote-oldest",
        module=_QUEUE,
        was="WHERE place = (SELECT min(place) FROM messages WHERE run_id = ?) AND visible_at IS NULL",
        becomes="WHERE run_id = ? AND visible_at IS NULL",
        protects="only the oldest message of a group comes next",
        killed_by=(f"{_BETWEEN}test_the_third_of_a_group_waits_for_the_second[memory]",),
    ),
)

STEP_QUEUE = (
    Mutation(
        id="local-steps-visible",
        module=_STEPS,
        was="FROM step_messages\nWHERE visible_at <= ? ORDER",
        becomes="FROM step_messages\nWHERE ? IS NOT NULL ORDER",
        protects="an attempt that is being made does not come",
        killed_by=(f"{_STEP_LAWS}test_an_attempt_given_back_comes_after_its_delay[memory]",),
    ),
    Mutation(
        id="local-steps-visible-to-known",
        module=_STEPS,
        was="WHERE visible_at <= ? AND name IN",
        becomes="WHERE ? IS NOT NULL AND name IN",
        protects="the same for an engine that knows some steps",
        killed_by=(
            f"{_BETWEEN}test_an_attempt_given_back_for_later_stays_away_from_who_knows_its_step",
        ),
    ),
    Mutation(
        id="local-steps-known",
        module=_STEPS,
        was=" AND name IN (SELECT value FROM json_each(?))",
        becomes=" AND ? IS NOT NULL",
        protects="an attempt is left to processes that know its step",
        killed_by=(f"{_STEP_LAWS}test_attempts_of_unknown_steps_are_left_to_others[memory]",),
    ),
    Mutation(
        id="local-steps-counts",
        module=_STEPS,
        was="receive_count = receive_count + 1",
        becomes="receive_count = receive_count",
        protects="receives are counted, and an end comes to them",
        killed_by=(f"{_STEP_LAWS}test_an_attempt_that_is_not_deleted_comes_again[memory]",),
    ),
    Mutation(
        id="local-steps-too-often",
        module=_STEPS,
        was="if count < self._max_receive_count:",
        becomes="if count <= self._max_receive_count:",
        protects="what was received too often becomes a dead letter",
        killed_by=(f"{_STEP_LAWS}test_what_is_received_too_often_becomes_a_dead_letter[memory]",),
    ),
    Mutation(
        id="local-steps-stale-count",
        module=_STEPS,
        was="AND receive_count = ? AND message_id",
        becomes="AND ? IS NOT NULL AND message_id",
        protects="the receipt of an earlier receive deletes nothing",
        killed_by=(f"{_STEP_LAWS}test_a_stale_receipt_has_no_effect[memory-False]",),
    ),
    Mutation(
        id="local-steps-stale-place",
        module=_STEPS,
        was="AND message_id = ? AND visible_at > ?",
        becomes="AND ? IS NOT NULL AND visible_at > ?",
        protects="the receipt of a deleted attempt does not hold the one that took its place",
        killed_by=(f"{_BETWEEN}test_a_receipt_is_spent_once_its_attempt_was_deleted",),
    ),
    Mutation(
        id="local-steps-stale-time",
        module=_STEPS,
        was="AND message_id = ? AND visible_at > ?",
        becomes="AND message_id = ? AND ? IS NOT NULL",
        protects="a receipt ends with the visibility timeout",
        killed_by=(f"{_STEP_LAWS}test_a_stale_receipt_has_no_effect[memory-True]",),
    ),
    Mutation(
        id="local-steps-delete-held",
        module=_STEPS,
        was='_DELETE = f"DELETE FROM step_messages WHERE {_HELD}"',
        becomes='_DELETE = "DELETE FROM step_messages WHERE place = ? AND (? + ? + ?) IS NOT NULL"',
        protects="a stale receipt deletes nothing",
        killed_by=(f"{_STEP_LAWS}test_a_stale_receipt_has_no_effect[memory-False]",),
    ),
    Mutation(
        id="local-steps-postpone-held",
        module=_STEPS,
        was='WHERE {_HELD}"  # noqa: S608\n_IS_HELD',
        becomes='WHERE place = ? AND (? + ? + ?) IS NOT NULL"\n_IS_HELD',
        protects="a stale receipt gives nothing back",
        killed_by=(f"{_STEP_LAWS}test_a_stale_receipt_has_no_effect[memory-False]",),
    ),
    Mutation(
        id="local-steps-reject-held",
        module=_STEPS,
        was="if self.database.query(_IS_HELD, *held):",
        becomes="if held:",
        protects="a stale receipt rejects nothing",
        killed_by=(f"{_STEP_LAWS}test_a_stale_receipt_has_no_effect[memory-False]",),
    ),
)

DEAD_LETTERS = (
    Mutation(
        id="local-letter-taken-once",
        module="adapters/local/dead_letters.py",
        was="WHERE message_id = ? AND taken_at IS NULL",
        becomes="WHERE message_id = ?",
        protects="one process tells the run of a dead letter",
        killed_by=(f"{_BETWEEN}test_a_dead_letter_is_taken_once",),
    ),
    Mutation(
        id="local-letter-not-taken-so-far",
        module="adapters/local/dead_letters.py",
        was="WHERE taken_at IS NULL",
        becomes="WHERE true",
        within="read_dead_letters",
        protects="a run is not told again of a dead letter",
        killed_by=(f"{_BETWEEN}test_a_dead_letter_is_taken_once",),
    ),
)

TIMERS = (
    Mutation(
        id="local-timer-moved",
        module=_TIMERS,
        was="DO UPDATE SET due = excluded.due",
        becomes="DO NOTHING",
        protects="a timer that is started again fires at the new time",
        killed_by=(
            f"{_TIMER_LAWS}test_a_timer_fires_at_the_time_that_it_was_last_started_with[memory-1700000001000]",
        ),
    ),
    Mutation(
        id="local-timer-not-early",
        module=_TIMERS,
        was='due FROM timers WHERE due <= ?"',
        becomes='due FROM timers WHERE ? IS NOT NULL"',
        protects="no timer fires early",
        killed_by=(f"{_TIMER_LAWS}test_a_timer_sends_its_message_when_due_and_not_before[memory]",),
    ),
    Mutation(
        id="local-timer-only-what-fired",
        module=_TIMERS,
        was='"DELETE FROM timers WHERE due <= ?"',
        becomes='"DELETE FROM timers WHERE ? IS NOT NULL"',
        protects="no timer is gone before its message is there",
        killed_by=(f"{_BETWEEN}test_a_timer_that_fires_takes_none_with_it_that_is_not_due",),
    ),
    Mutation(
        id="local-timer-fires-once",
        module=_TIMERS,
        was='                self._database.change("DELETE FROM timers WHERE due <= ?", now)\n',
        becomes="                pass\n",
        protects="a timer that has fired is gone",
        killed_by=(f"{_TIMER_LAWS}test_a_timer_fires_once[memory]",),
    ),
    Mutation(
        id="local-timer-with-its-message",
        module=_TIMERS,
        was="with self._database.writing():",
        becomes="if self._database:",
        protects="a timer is gone exactly when its message is there",
        killed_by=(f"{_OWN}test_a_crash_while_timers_fire_loses_none",),
    ),
    Mutation(
        id="local-timer-carries-its-time",
        module=_TIMERS,
        was="queue.put(TimerDue(run_id=run_id, wait_id=wait_id, arm=arm, due=time))",
        becomes="queue.put(TimerDue(run_id=run_id, wait_id=wait_id, arm=arm, due=now))",
        protects="a timer's message says when it was due, whatever the clocks say",
        killed_by=(f"{_TIMER_LAWS}test_a_late_timer_carries_the_time_it_was_due[memory]",),
    ),
)

RUNTIME = (
    Mutation(
        id="local-fenced-is-given-back",
        module=_RUNTIME,
        within="LocalEngine._taken",
        was="        except (TransientError, Fenced) as error:\n            await self._give_back(delivery, message, error)\n            return False\n",
        becomes="        except (TransientError, Fenced):\n            return True\n",
        protects="a turn that was overtaken never acknowledges its message",
        killed_by=(f"{_DOUBTS}test_a_turn_that_was_overtaken_gives_its_message_back",),
    ),
    Mutation(
        id="local-last-receive",
        module=_RUNTIME,
        was="last=delivery.receive_count >= MAX_RECEIVE_COUNT,",
        becomes="last=False,",
        protects="a run whose message becomes a dead letter is marked before",
        killed_by=(
            f"{_ENGINE}test_a_run_whose_turns_keep_failing_ends_up_marked_as_stuck_and_others_go_on",
        ),
    ),
    Mutation(
        id="local-unknown-start-is-left",
        module=_RUNTIME,
        was="            await self.local.store.put_header(header_of(message))\n            await self.local.queue.give_back(delivery)\n            return False\n",
        becomes="            await self.local.queue.give_back(delivery)\n            return False\n",
        protects="a start whose sender died finds the engine that knows its workflow",
        killed_by=(
            f"{_ENGINE}test_a_start_whose_sender_died_is_left_to_an_engine_that_knows_the_workflow",
        ),
    ),
    Mutation(
        id="local-lease-renewed",
        module="adapters/local/leases.py",
        was="held = self._queue.postpone(delivery, self._lease)",
        becomes="held = True",
        protects="a long turn keeps its message",
        killed_by=(f"{_ENGINE}test_a_step_that_blocks_the_event_loop_keeps_its_lease",),
    ),
)

MUTATIONS = (*QUEUE, *STEP_QUEUE, *DEAD_LETTERS, *TIMERS, *RUNTIME)
