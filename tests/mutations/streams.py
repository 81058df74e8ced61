"""Conditions of stream runs: who claims numbers, what a head says, groups of the signal queue."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

_AWS = "adapters/aws/streams.py"
_LOADING = "adapters/aws/loading.py"
_BATCHES = "adapters/aws/batches.py"
_SQS = "adapters/aws/signal_queue.py"
_SQS_TIMERS = "adapters/aws/signal_timers.py"
_NUMBERING = "adapters/aws/handlers/numbering.py"
_INBOX = "adapters/aws/handlers/inbox.py"
_SWEEPER = "adapters/aws/handlers/sweeper.py"
_SIGNALS = "adapters/aws/handlers/signals.py"
_LOCAL = "adapters/local/streams.py"
_QUEUE = "adapters/local/signal_queue.py"
_STORE = "adapters/local/store.py"
_SEQUENCING = "engine/sequencing.py"
_DECIDE = "tests/unit/core/test_decide.py::"
_NUMBERS = "tests/unit/engine/test_batches_left.py::"
_LAWS = "tests/contract/test_streams.py::"
_LOGS = "tests/contract/test_snapshots.py::"
_LINES = "tests/contract/test_signals.py::"
_SENDS = "tests/contract/test_sqs_batches.py::"
_FUNCTIONS = "tests/integration/aws/test_signals.py::"

ROWS = (
    Mutation(
        id="child-noted-after-its-end",
        module="core/decide.py",
        was="        if child.id in ended:\n            return None\n",
        becomes="",
        protects="what a child waited for is not recorded behind its end",
        killed_by=(f"{_DECIDE}test_what_a_child_waited_for_is_old_once_its_end_is_known",),
    ),
    Mutation(
        id="aws-signals-claim",
        module=_AWS,
        was="self._table.put(item, BatchItem.pk.does_not_exist())",
        becomes="self._table.put(item)",
        protects="a number is one signal's for good",
        killed_by=(f"{_LAWS}test_a_number_is_claimed_once[aws]",),
    ),
    Mutation(
        id="aws-signals-own-batch",
        module=_AWS,
        was='return bool(found["batch_id"] == item["batch_id"])',
        becomes="return False",
        protects="a batch whose reply was lost recognises itself",
        killed_by=(f"{_LAWS}test_a_batch_whose_reply_is_lost_finds_itself",),
    ),
    Mutation(
        id="aws-signals-other-batch",
        module=_AWS,
        was='return bool(found["batch_id"] == item["batch_id"])',
        becomes="return True",
        protects="whoever comes second puts its signals behind those that stand",
        killed_by=(f"{_LAWS}test_a_number_is_claimed_once[aws]",),
    ),
    Mutation(
        id="aws-head-first",
        module=_AWS,
        was="StreamItem.pk.does_not_exist() | (StreamItem.last < head.last)",
        becomes="StreamItem.last < head.last",
        protects="a stream run gets a head",
        killed_by=(f"{_LAWS}test_a_stream_run_begins_without_a_head[aws]",),
    ),
    Mutation(
        id="aws-head-never-back",
        module=_AWS,
        was="(StreamItem.last < head.last)",
        becomes="StreamItem.pk.exists()",
        protects="a head never goes back",
        killed_by=(f"{_LAWS}test_a_head_never_goes_back[aws]",),
    ),
    Mutation(
        id="aws-head-made-once",
        module=_AWS,
        was="StreamItem.created_at.set(StreamItem.created_at | head.created_at)",
        becomes="StreamItem.created_at.set(head.created_at)",
        protects="a head says when its stream run began",
        killed_by=(f"{_LAWS}test_a_head_keeps_when_it_was_made[aws]",),
    ),
    Mutation(
        id="aws-signals-no-gap",
        module=_AWS,
        was="                if signal.sequence != after + 1:\n",
        becomes="                if False:\n",
        protects="no subscription passes over a signal that was put while it read",
        killed_by=(f"{_LAWS}test_reading_ends_where_a_batch_is_missing",),
    ),
    Mutation(
        id="aws-find-consistent",
        module=_AWS,
        was="consistent=True",
        becomes="consistent=False",
        protects="a signal that was numbered a moment ago has no second number",
        killed_by=(f"{_LAWS}test_reads_of_a_stream_run_are_strongly_consistent",),
    ),
    Mutation(
        id="aws-load-from-snapshot",
        module=_LOADING,
        was="CommitItem.sk.between(commit_key(start), LOAD_END)",
        becomes="CommitItem.sk.between(commit_key(0), LOAD_END)",
        protects="a subscription is not read from its beginning at each signal",
        killed_by=(f"{_LOGS}test_a_subscription_is_loaded_from_its_snapshot_on[aws]",),
    ),
    Mutation(
        id="aws-load-snapshot-there",
        module=_LOADING,
        was="    if start and [commit.first for commit in rows.commits[:1]] != [start]:\n        return False\n",
        becomes="",
        protects="no log is folded without the snapshot that it begins with",
        killed_by=(f"{_LOGS}test_a_log_that_was_trimmed_while_it_was_read_is_read_again",),
    ),
    Mutation(
        id="aws-trim-below",
        module=_LOADING,
        was="commit_key(before - 1)",
        becomes="commit_key(before)",
        protects="the commit of a snapshot stays",
        killed_by=(f"{_LOGS}test_a_commit_that_begins_at_the_number_stays[aws]",),
    ),
    Mutation(
        id="local-trim-below",
        module=_STORE,
        was="first < ?",
        becomes="first <= ?",
        protects="the commit of a snapshot stays",
        killed_by=(f"{_LOGS}test_a_commit_that_begins_at_the_number_stays[memory]",),
    ),
    Mutation(
        id="local-signals-claim",
        module=_LOCAL,
        was="DO UPDATE SET batch_id = excluded.batch_id\nWHERE batch_id = excluded.batch_id",
        becomes="DO UPDATE SET batch_id = excluded.batch_id",
        protects="a number is one signal's for good",
        killed_by=(f"{_LAWS}test_a_number_is_claimed_once[memory]",),
    ),
    Mutation(
        id="local-signals-own-batch",
        module=_LOCAL,
        was="ON CONFLICT (stream, stream_run, first) DO UPDATE SET batch_id = excluded.batch_id\nWHERE batch_id = excluded.batch_id",
        becomes="ON CONFLICT (stream, stream_run, first) DO NOTHING",
        protects="a batch that is put again recognises itself",
        killed_by=(f"{_LAWS}test_a_batch_that_is_put_again_recognises_itself[memory]",),
    ),
    Mutation(
        id="local-head-never-back",
        module=_LOCAL,
        was="WHERE excluded.last > last",
        becomes="WHERE true",
        protects="a head never goes back",
        killed_by=(f"{_LAWS}test_a_head_never_goes_back[memory]",),
    ),
    Mutation(
        id="local-head-made-once",
        module=_LOCAL,
        was="ON CONFLICT (stream, stream_run)\nDO UPDATE SET last = excluded.last,",
        becomes="ON CONFLICT (stream, stream_run)\nDO UPDATE SET last = excluded.last, created_at = excluded.created_at,",
        protects="a head says when its stream run began",
        killed_by=(f"{_LAWS}test_a_head_keeps_when_it_was_made[memory]",),
    ),
    Mutation(
        id="local-signals-after",
        module=_LOCAL,
        was="first > ?",
        becomes="first >= ?",
        protects="no signal is read twice",
        killed_by=(
            f"{_LAWS}test_as_many_are_read_as_there_are_though_their_batches_are_small[memory]",
        ),
    ),
    Mutation(
        id="local-signals-remembered",
        module=_LOCAL,
        was="signal_id = ? AND until > ?",
        becomes="signal_id = ? AND ? IS NOT NULL",
        protects="an id is free again after its time",
        killed_by=(f"{_LAWS}test_what_was_remembered_until_a_time_is_forgotten_then",),
    ),
    Mutation(
        id="local-signals-by-id",
        module=_LOCAL,
        was="{_OF} AND signal_id = ?",
        becomes="{_OF} AND ? IS NOT NULL",
        protects="a signal that nobody sent before is new",
        killed_by=(f"{_LAWS}test_signals_that_are_remembered_are_found[memory]",),
    ),
    Mutation(
        id="local-signals-remembered-longer",
        module=_LOCAL,
        was="ON CONFLICT (stream, stream_run, signal_id)\nDO UPDATE SET number = excluded.number, until = excluded.until",
        becomes="ON CONFLICT (stream, stream_run, signal_id) DO NOTHING",
        protects="what is remembered again is remembered for as long as was said last",
        killed_by=(f"{_LAWS}test_what_was_remembered_until_a_time_is_forgotten_then",),
    ),
    Mutation(
        id="local-signals-swept",
        module=_LOCAL,
        was="DELETE FROM signal_numbers WHERE until <= ?",
        becomes="DELETE FROM signal_numbers WHERE until <= ? AND false",
        protects="what is forgotten takes no room",
        killed_by=(f"{_LAWS}test_what_was_remembered_until_a_time_is_forgotten_then",),
    ),
    Mutation(
        id="local-signals-kept",
        module=_LOCAL,
        was="DELETE FROM signal_numbers WHERE until <= ?",
        becomes="DELETE FROM signal_numbers WHERE ? IS NOT NULL",
        protects="what is remembered stays until its time",
        killed_by=(f"{_LAWS}test_signals_that_are_remembered_are_found[memory]",),
    ),
    Mutation(
        id="local-subscription-replaced",
        module=_LOCAL,
        was="ON CONFLICT (stream, stream_run, step) DO UPDATE SET body = excluded.body",
        becomes="ON CONFLICT (stream, stream_run, step) DO NOTHING",
        protects="nobody wakes a subscription that has ended",
        killed_by=(f"{_LAWS}test_a_subscription_is_put_in_place_of_the_one_that_stands[memory]",),
    ),
    Mutation(
        id="sequencer-fits-a-row",
        module=_SEQUENCING,
        was="        if n and size > _LARGEST:\n",
        becomes="        if False:\n",
        protects="ten large signals are numbered, in several rows",
        killed_by=(f"{_FUNCTIONS}test_ten_signals_that_are_large_together_become_several_rows",),
    ),
    Mutation(
        id="signals-to-the-last-batch",
        module=_SEQUENCING,
        was="            if len(found) < _BEHIND:\n",
        becomes="            if True:\n",
        protects="no number in the middle of a batch is claimed again",
        killed_by=(
            f"{_NUMBERS}test_a_head_that_is_far_behind_claims_no_number_in_the_middle_of_a_batch",
        ),
    ),
)

SENDING = (
    Mutation(
        id="aws-batch-again",
        module=_BATCHES,
        was='        left = [entry for entry in left if entry["Id"] in failed]\n',
        becomes="        return\n",
        protects="what SQS did not take of a batch is sent again",
        killed_by=(f"{_SENDS}test_what_was_not_taken_is_sent_again[reason0]",),
    ),
    Mutation(
        id="aws-batch-lasting",
        module=_BATCHES,
        was="            raise lasting\n",
        becomes="            pass\n",
        protects="what SQS can never take is no fault in passing",
        killed_by=(f"{_SENDS}test_what_cannot_be_taken_is_not_sent_again",),
    ),
    Mutation(
        id="aws-batch-size",
        module=_BATCHES,
        was="size + length > BODY_LIMIT",
        becomes="False",
        protects="SQS refuses no batch for its size",
        killed_by=(f"{_SENDS}test_a_batch_is_no_larger_than_one_message_may_be",),
    ),
    Mutation(
        id="aws-signals-in-turn",
        module=_SQS,
        was="zip_longest(*runs.values())",
        becomes="[[entry for entries in runs.values() for entry in entries]]",
        protects="no signal overtakes one that SQS did not take at first",
        killed_by=(f"{_SENDS}test_a_signal_that_is_not_taken_is_not_overtaken",),
    ),
    Mutation(
        id="aws-signals-group",
        module=_SQS,
        was='"MessageGroupId": group_of(message.key.owner),',
        becomes='"MessageGroupId": "signals",',
        protects="no stream run waits for another",
        killed_by=(f"{_SENDS}test_a_signal_is_of_the_group_of_its_stream_run",),
    ),
    Mutation(
        id="aws-signals-one-id",
        module=_SQS,
        was="        parts += (message.signal_id,)\n",
        becomes="        parts += (message.model_dump_json(),)\n",
        protects="a signal that is sent twice takes one place in the queue",
        killed_by=(f"{_LINES}test_a_signal_that_is_sent_twice_within_minutes_arrives_once[aws]",),
    ),
    Mutation(
        id="aws-signals-asked",
        module=_SQS,
        was="        parts += (message.signal.signal_id, message.type, str(message.signal.due))\n",
        becomes="        parts += (message.signal.signal_id,)\n",
        protects="asking for a signal later does not swallow the signal",
        killed_by=(f"{_SENDS}test_what_is_asked_about_a_signal_does_not_swallow_it",),
    ),
    Mutation(
        id="aws-signals-size",
        module=_SQS,
        was="what, SIGNAL_LIMIT)",
        becomes="what)",
        protects="a signal that fits no row is refused before it is sent",
        killed_by=(f"{_SENDS}test_a_signal_up_to_what_a_row_takes_is_sent",),
    ),
    Mutation(
        id="aws-signal-timer-past",
        module=_SQS_TIMERS,
        was="        if delay <= 0:\n",
        becomes="        if False:\n",
        protects="a signal whose time has passed is sent at once",
        killed_by=(
            f"{_SENDS}test_a_signal_whose_time_has_passed_goes_to_its_queue_at_once[1700000000000]",
        ),
    ),
    Mutation(
        id="aws-signal-timer-short",
        module=_SQS_TIMERS,
        was="        elif delay <= LONGEST_DELAY_S:\n",
        becomes="        elif delay < LONGEST_DELAY_S:\n",
        protects="up to fifteen minutes the inbox keeps a signal back",
        killed_by=(f"{_SENDS}test_up_to_fifteen_minutes_the_inbox_keeps_a_signal_back",),
    ),
    Mutation(
        id="local-signals-once",
        module=_QUEUE,
        was="ON CONFLICT (owner, signal_id) DO NOTHING",
        becomes="ON CONFLICT (owner, signal_id) DO UPDATE SET until = excluded.until",
        protects="equal ids within five minutes are one signal",
        killed_by=(
            f"{_LINES}test_a_signal_that_is_sent_twice_within_minutes_arrives_once[memory]",
        ),
    ),
    Mutation(
        id="local-signals-window-ends",
        module=_QUEUE,
        was="DELETE FROM sent_signals WHERE until <= ?",
        becomes="DELETE FROM sent_signals WHERE until <= ? AND false",
        protects="an id is free again after five minutes",
        killed_by=(f"{_LINES}test_an_id_is_free_again_after_five_minutes",),
    ),
    Mutation(
        id="local-signals-window-lasts",
        module=_QUEUE,
        was="DELETE FROM sent_signals WHERE until <= ?",
        becomes="DELETE FROM sent_signals WHERE ? IS NOT NULL",
        protects="an id is taken for five minutes",
        killed_by=(f"{_LINES}test_an_id_is_free_again_after_five_minutes",),
    ),
    Mutation(
        id="local-signals-own-group",
        module=_QUEUE,
        was="    WHERE signal_holds.owner = signal_messages.owner AND held_until > ?)",
        becomes="    WHERE held_until > ?)",
        protects="no stream run waits for another",
        killed_by=(f"{_LINES}test_up_to_ten_signals_of_one_stream_run_come_together",),
    ),
    Mutation(
        id="local-signals-come-again",
        module=_QUEUE,
        was="signal_holds.owner = signal_messages.owner AND held_until > ?)",
        becomes="signal_holds.owner = signal_messages.owner AND ? IS NOT NULL)",
        protects="what was not acknowledged comes again",
        killed_by=(
            f"{_LINES}test_what_was_not_acknowledged_comes_again_and_the_old_receipt_is_stale",
        ),
    ),
    Mutation(
        id="local-signals-of-one-run",
        module=_QUEUE,
        was="FROM signal_messages WHERE owner = ? ORDER BY place LIMIT ?)",
        becomes="FROM signal_messages WHERE ? IS NOT NULL ORDER BY place LIMIT ?)",
        protects="a delivery holds one stream run's signals",
        killed_by=(f"{_LINES}test_up_to_ten_signals_of_one_stream_run_come_together",),
    ),
    Mutation(
        id="local-signals-held-anew",
        module=_QUEUE,
        was="ON CONFLICT (owner) DO UPDATE SET receipt = excluded.receipt, held_until = excluded.held_until",
        becomes="ON CONFLICT (owner) DO NOTHING",
        protects="who received last may acknowledge",
        killed_by=(
            f"{_LINES}test_what_was_not_acknowledged_comes_again_and_the_old_receipt_is_stale",
        ),
    ),
    Mutation(
        id="local-signals-stale-receipt",
        module=_QUEUE,
        within="SqliteSignalQueue._held",
        was="WHERE owner = ? AND held_until > ?",
        becomes="WHERE owner = ? AND ? IS NOT NULL",
        protects="an expired receipt does nothing",
        killed_by=(f"{_LINES}test_an_expired_receipt_is_stale_though_nobody_came_after",),
    ),
    Mutation(
        id="local-signals-depth",
        module=_QUEUE,
        was="SELECT count(*) FROM signal_messages WHERE owner = ?",
        becomes="SELECT count(*) FROM signal_messages WHERE ? IS NOT NULL",
        protects="who waits for a stream run does not wait for others",
        killed_by=(f"{_LINES}test_the_depth_is_known_by_owner",),
    ),
    Mutation(
        id="local-signal-timer-moved",
        module=_QUEUE,
        was="ON CONFLICT (owner, signal_id) DO UPDATE SET due = excluded.due, body = excluded.body",
        becomes="ON CONFLICT (owner, signal_id) DO NOTHING",
        protects="a signal that is scheduled again is sent then",
        killed_by=(
            f"{_LINES}test_a_signal_that_is_scheduled_again_is_sent_at_the_later_time[memory]",
        ),
    ),
    Mutation(
        id="local-signal-timer-not-early",
        module=_QUEUE,
        was="DELETE FROM signal_timers WHERE due <= ?",
        becomes="DELETE FROM signal_timers WHERE ? IS NOT NULL",
        protects="no signal is sent before its time",
        killed_by=(f"{_LINES}test_due_signals_are_sent_earliest_first",),
    ),
)

FUNCTIONS = (
    Mutation(
        id="numbering-fits-a-row",
        module=_NUMBERING,
        was="    if size > SIGNAL_LIMIT:\n",
        becomes="    if False:\n",
        protects="a signal that fits no row does not hold up its stream run",
        killed_by=(f"{_FUNCTIONS}test_a_signal_that_fits_no_row_is_a_dead_letter",),
    ),
    Mutation(
        id="numbering-in-order",
        module=_NUMBERING,
        was="            return records\n",
        becomes="            return records[:1]\n",
        protects="no signal is acknowledged that was not numbered",
        killed_by=(
            f"{_FUNCTIONS}test_what_fails_in_passing_comes_again_from_the_first_of_its_stream_run_on",
        ),
    ),
    Mutation(
        id="numbering-refused-is-kept",
        module=_NUMBERING,
        was="            return False\n",
        becomes="            return True\n",
        protects="what cannot be read is lost nowhere",
        killed_by=(
            f"{_FUNCTIONS}test_what_cannot_become_a_dead_letter_comes_again_and_the_others_do_not",
        ),
    ),
    Mutation(
        id="numbering-not-early",
        module=_NUMBERING,
        was="if (message.signal.due or 0) <= self._aws.ports.clock.now():",
        becomes="if message.signal:",
        protects="no signal is numbered before its time",
        killed_by=(f"{_FUNCTIONS}test_a_signal_for_later_is_kept_until_its_time",),
    ),
    Mutation(
        id="inbox-signal-not-early",
        module=_INBOX,
        within="Inbox._hand_on_signal",
        was="        if wait > 0:\n",
        becomes="        if wait > LONGEST_DELAY_S:\n",
        protects="no signal is handed on before its time",
        killed_by=(
            f"{_FUNCTIONS}test_a_signal_that_waits_on_the_inbox_is_sent_when_it_is_due_and_not_before",
        ),
    ),
    Mutation(
        id="inbox-signal-sound",
        module=_INBOX,
        was="        if not is_sound(later.signal):\n",
        becomes="        if False:\n",
        protects="no signal shows what belongs to another run",
        killed_by=(f"{_FUNCTIONS}test_nobody_slips_a_signal_by_as_one_that_waits[fields3]",),
    ),
    Mutation(
        id="sweeper-signal-sound",
        module=_SWEEPER,
        was="            if is_sound(signal):\n",
        becomes="            if signal:\n",
        protects="no dead letter shows what belongs to another run",
        killed_by=(f"{_FUNCTIONS}test_the_sweeper_sends_no_signal_that_shows_what_is_anothers",),
    ),
    Mutation(
        id="inbox-signal-once",
        module=_SIGNALS,
        was='idempotency_key=f"sqs-{record.message_id}" if key is None else key,',
        becomes="idempotency_key=key,",
        protects="a signal from outside that comes twice is one signal",
        killed_by=(f"{_FUNCTIONS}test_a_signal_from_outside_that_comes_twice_is_one_signal",),
    ),
)

MUTATIONS = (*ROWS, *SENDING, *FUNCTIONS)
