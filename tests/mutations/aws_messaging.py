"""Conditions of queues, timers and blobs on AWS, and of the functions where they decide."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

_QUEUE = "adapters/aws/queue.py"
_TIMERS = "adapters/aws/timers.py"
_SCHEDULE = "adapters/aws/schedules.py"
_BLOBS = "adapters/aws/blobs.py"
_BATCH = "adapters/aws/handlers/batch.py"
_WORKER = "adapters/aws/handlers/worker.py"
_STEP = "adapters/aws/handlers/step.py"
_INBOX = "adapters/aws/handlers/inbox.py"
_SQS = "tests/contract/test_sqs.py::"
_SCHEDULES = "tests/contract/test_scheduler.py::"
_STORAGE = "tests/contract/test_dynamodb.py::"
_WORKERS = "tests/integration/aws/test_worker.py::"
_STEPS = "tests/integration/aws/test_step_function.py::"
_INBOXES = "tests/integration/aws/test_inbox.py::"

QUEUE = (
    Mutation(
        id="aws-stale-receipt",
        module=_QUEUE,
        was="        if _is_stale(error):\n            return False\n",
        becomes="",
        protects="a stale receipt does nothing, and is no failure (F12)",
        killed_by=(f"{_SQS}test_a_receipt_of_a_deleted_message_is_stale",),
    ),
    Mutation(
        id="aws-only-stale-receipts",
        module=_QUEUE,
        was="        if _is_stale(error):\n            return False\n        raise\n",
        becomes="        return not _is_stale(error)\n",
        protects="a message that cannot be given back for another reason is no stale one",
        killed_by=(
            "tests/contract/test_aws_conditions.py::test_giving_back_to_a_queue_that_is_not_there_is_no_stale_receipt",
        ),
    ),
    Mutation(
        id="aws-one-group-per-run",
        module=_QUEUE,
        was="            MessageGroupId=group_of(message.run_id),\n",
        becomes="            MessageGroupId=group_of(message.type),\n",
        protects="a run has one turn at a time, and no run waits for another",
        killed_by=(f"{_SQS}test_odd_run_ids_are_groups_of_their_own",),
    ),
    Mutation(
        id="aws-group-of-odd-ids",
        module=_QUEUE,
        was="if _GROUP.fullmatch(run_id) and not run_id.startswith(_HASHED):",
        becomes="if _GROUP.fullmatch(run_id):",
        protects="no run's id is another one's group",
        killed_by=(f"{_SQS}test_a_group_is_one_that_sqs_takes_and_one_runs_own",),
    ),
    Mutation(
        id="aws-body-with-a-cause",
        module=_QUEUE,
        was='    if "" in cause_of(message):\n',
        becomes="    if False:\n",
        protects="the queue swallows no message for want of a cause (F11)",
        killed_by=(f"{_SQS}test_a_message_without_a_cause_is_refused",),
    ),
    Mutation(
        id="aws-batch-names-its-own",
        module=_QUEUE,
        was="    if unknown := lost - set(order):\n",
        becomes="    if unknown := set(order) - set(order):\n",
        protects="no failure is named that Lambda takes for the whole batch's",
        killed_by=(f"{_SQS}test_a_batch_response_names_the_failed_in_order",),
    ),
    Mutation(
        id="aws-blob-once",
        module=_BLOBS,
        was=', IfNoneMatch="*"',
        becomes="",
        protects="what stands under a hash is never replaced",
        killed_by=(f"{_STORAGE}test_what_stands_under_a_hash_is_never_replaced",),
    ),
    Mutation(
        id="aws-blob-is-there",
        module=_BLOBS,
        was='if code != "PreconditionFailed":',
        becomes="if code:",
        protects="a blob that is there already is put",
        killed_by=(f"{_STORAGE}test_a_blob_whose_reply_was_lost_is_put",),
    ),
)

TIMERS = (
    Mutation(
        id="aws-timer-past",
        module=_TIMERS,
        was="        if delay <= 0:\n",
        becomes="        if False:\n",
        protects="a time that has passed goes to the run at once",
        killed_by=(f"{_SCHEDULES}test_a_time_that_has_passed_goes_to_the_run_queue[0]",),
    ),
    Mutation(
        id="aws-timer-short",
        module=_TIMERS,
        was="        elif delay <= LONGEST_DELAY_S:\n",
        becomes="        elif delay < LONGEST_DELAY_S:\n",
        protects="up to fifteen minutes the inbox keeps a timer back",
        killed_by=(f"{_SCHEDULES}test_up_to_fifteen_minutes_the_inbox_keeps_it_back[900000-900]",),
    ),
    Mutation(
        id="aws-timer-not-early",
        module=_QUEUE,
        was="    return -(-ms // 1000)\n",
        becomes="    return ms // 1000\n",
        protects="no timer fires early for a part of a second",
        killed_by=(f"{_SCHEDULES}test_up_to_fifteen_minutes_the_inbox_keeps_it_back[1001-2]",),
    ),
    Mutation(
        id="aws-timer-name",
        module=_SCHEDULE,
        was="json.dumps([run_id, *rest])",
        becomes="json.dumps([run_id, *rest[:1]])",
        protects="each arm of a wait has a timer of its own",
        killed_by=(f"{_SCHEDULES}test_a_cancelled_schedule_is_gone_and_others_stay",),
    ),
    Mutation(
        id="aws-schedule-stands",
        module=_SCHEDULE,
        within="Schedules._create",
        was='            if error_code(error) == "ConflictException":\n                return False\n',
        becomes="",
        protects="a schedule that stands is found when its timer is started again",
        killed_by=(f"{_SCHEDULES}test_starting_a_scheduled_timer_again_changes_nothing",),
    ),
    Mutation(
        id="aws-schedule-of-its-name",
        module=_SCHEDULE,
        within="Schedules._create",
        was='if error_code(error) == "ConflictException":',
        becomes="if error_code(error):",
        protects="a schedule that cannot be made is no schedule that stands",
        killed_by=(f"{_SCHEDULES}test_a_missing_permission_is_no_fault_in_passing",),
    ),
    Mutation(
        id="aws-schedule-agrees",
        module=_SCHEDULE,
        was="if _agrees(standing, wanted) or await",
        becomes="if standing or await",
        protects="a timer that is started with another time fires then",
        killed_by=(f"{_SCHEDULES}test_a_schedule_that_says_something_else_is_replaced",),
    ),
    Mutation(
        id="aws-schedule-gone",
        module=_SCHEDULE,
        was="            if standing is None:  # it has just fired or been cancelled\n                continue\n",
        becomes="            if standing is None:\n                return\n",
        protects="a schedule that went away under our hands is made",
        killed_by=(f"{_SCHEDULES}test_a_schedule_that_is_gone_when_looked_at_is_created",),
    ),
    Mutation(
        id="aws-schedule-being-changed",
        module=_SCHEDULE,
        within="Schedules._replace",
        was='            if error_code(error) in ("ResourceNotFoundException", "ConflictException"):\n                return False\n',
        becomes="            if error_code(error):\n                return True\n",
        protects="a schedule that somebody else is changing is looked at again",
        killed_by=(f"{_SCHEDULES}test_a_schedule_that_somebody_changes_all_the_time_is_transient",),
    ),
    Mutation(
        id="aws-schedule-cancelled-twice",
        module=_SCHEDULE,
        was='if error_code(error) not in ("ResourceNotFoundException", "ConflictException"):',
        becomes='if error_code(error) not in ("ConflictException",):',
        protects="a timer that has fired can be cancelled",
        killed_by=(f"{_SCHEDULES}test_a_cancelled_schedule_is_gone_and_others_stay",),
    ),
)

FUNCTIONS = (
    Mutation(
        id="failed-is-given-back",
        module=_BATCH,
        within="Source._worked",
        was="            return False\n",
        becomes="            return True\n",
        protects="whatever a turn raises, its message comes again (F4)",
        killed_by=(f"{_WORKERS}test_a_message_whose_turn_fails_comes_again_later_and_later",),
    ),
    Mutation(
        id="in-order-after-a-failure",
        module=_BATCH,
        was="if failed and in_order:",
        becomes="if False:",
        protects="no message overtakes the one before it of its run",
        killed_by=(f"{_WORKERS}test_what_follows_a_failed_message_of_a_batch_fails_with_it",),
    ),
    Mutation(
        id="worker-last-receive",
        module=_WORKER,
        was="last=record.receive_count >= self._max_receive_count,",
        becomes="last=False,",
        protects="a run whose message becomes a dead letter is marked before",
        killed_by=(
            f"{_WORKERS}test_a_run_is_marked_stuck_before_its_last_try_and_the_mark_goes_when_that_works",
        ),
    ),
    Mutation(
        id="given-up-after-deletion",
        module=_WORKER,
        was="        if not self._deleted(done):\n            return\n",
        becomes="        self._deleted(done)\n",
        protects="a process is given up only when its finished messages are deleted",
        killed_by=(f"{_WORKERS}test_a_process_lives_on_when_its_message_cannot_be_deleted",),
    ),
    Mutation(
        id="step-busy",
        module=_STEP,
        was="                raise Busy(max(busy.until - self._aws.ports.clock.now(), 0)) from busy\n",
        becomes="                raise Busy(0) from busy\n",
        protects="a second receiver waits until the first must be over",
        killed_by=(f"{_STEPS}test_a_second_receiver_waits_until_the_first_must_be_over",),
    ),
    Mutation(
        id="inbox-timer-not-early",
        module=_INBOX,
        within="Inbox._hand_on",
        was="        if wait > 0:\n",
        becomes="        if wait > LONGEST_DELAY_S:\n",
        protects="no timer is handed on before its time",
        killed_by=(f"{_INBOXES}test_a_timer_is_handed_on_when_it_is_due_and_never_before",),
    ),
    Mutation(
        id="inbox-timer-not-for-ever",
        module=_INBOX,
        was="        if wait > _LONGEST_WAIT_S:\n",
        becomes="        if False:\n",
        protects="no timer from outside goes round for ever",
        killed_by=(f"{_INBOXES}test_a_timer_that_would_go_round_for_ever_is_refused",),
    ),
    Mutation(
        id="inbox-in-passing",
        module=_INBOX,
        was="        except (TransientError, BlobMissing):\n            raise\n",
        becomes="",
        protects="what fails in passing comes again, and is not refused",
        killed_by=(
            "tests/integration/aws/test_inbox_in_passing.py::test_what_cannot_be_done_now_is_given_back_and_not_refused",
        ),
    ),
    Mutation(
        id="inbox-start-once",
        module=_INBOX,
        was='idempotency_key=f"sqs-{record.message_id}" if key is None else key,',
        becomes="idempotency_key=key,",
        protects="a start message that comes twice starts one run",
        killed_by=(f"{_INBOXES}test_a_start_message_that_comes_twice_starts_one_run",),
    ),
)

MUTATIONS = (*QUEUE, *TIMERS, *FUNCTIONS)
