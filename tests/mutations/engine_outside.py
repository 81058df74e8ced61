"""Conditions outside of turns: callers, answers, dispatched attempts, publishing."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

_ANSWERING = "engine/answering.py"
_START = "engine/starts.py"
_ATTEMPT = "engine/attempt.py"
_DISPATCH = "engine/dispatch.py"
_HOOK = "tests/integration/test_workflow_hooks.py::"
_CALLER = "tests/simulation/test_crash_everywhere.py::"
_RACES = "tests/integration/test_dispatched_races.py::"
_DOUBTS = "tests/integration/test_doubts.py::"
_STARTS = "tests/integration/test_client.py::"

CALLERS = (
    Mutation(
        id="start-message-before-header",
        module=_START,
        within="Starts.start",
        was="        await self._ports.queue.send(message)\n        standing = await self._ports.store.put_header(header_of(message))\n",
        becomes="        standing = await self._ports.store.put_header(header_of(message))\n        await self._ports.queue.send(message)\n",
        protects="a caller that dies between the two leaves no run that never begins",
        killed_by=(
            f"{_CALLER}test_a_start_whose_caller_dies_for_good_happens_once_it_was_sent[after]",
        ),
    ),
    Mutation(
        id="start-loser-compares",
        module=_START,
        within="_same_start",
        was="    if standing.input_digest != given:\n",
        becomes="    if False:\n",
        protects="the same key with another input is a conflict (F10)",
        killed_by=(f"{_STARTS}test_the_same_key_with_another_input_is_a_conflict",),
    ),
    Mutation(
        id="start-loser-of-the-put-compares",
        module=_START,
        within="Starts.start",
        was='return _same_start(standing, start.digest, key or ""), repeated',
        becomes="return run_id, repeated",
        protects="so it is for a caller whose header put lost (F10)",
        killed_by=(f"{_DOUBTS}test_a_start_whose_header_lost_compares_its_input",),
    ),
    Mutation(
        id="cancel-flag",
        module="engine/operating.py",
        within="Operating.cancel",
        was="        await self._ports.store.request_cancel(header.run_id)\n",
        becomes="",
        protects="a long step sees that its run is to be cancelled",
        killed_by=(f"{_DOUBTS}test_a_cancel_shows_on_the_run_at_once",),
    ),
    Mutation(
        id="cancel-message-before-flag",
        module="engine/operating.py",
        within="Operating.cancel",
        was="        await self._ports.queue.send(\n",
        becomes="        await self._ports.store.request_cancel(header.run_id)\n        await self._ports.queue.send(\n",
        protects="a flag that stands says that the run will be cancelled",
        killed_by=(
            f"{_DOUBTS}test_a_cancel_whose_caller_dies_shows_on_the_run_only_if_it_comes[queue.send-before-False]",
        ),
    ),
    Mutation(
        id="stuck-message-second",
        module="engine/control.py",
        within="send_kept",
        was="            await ports.queue.send(load_message(note.message))\n",
        becomes="            load_message(note.message)\n",
        protects="a stuck run gets the message that could not be handled once more",
        killed_by=(
            "tests/integration/test_publish.py::test_a_stuck_run_gets_its_message_again_when_it_is_woken",
        ),
    ),
    Mutation(
        id="wake-before-publishing",
        module="engine/catalogue.py",
        was="        woken = await self._wake_blocked(causes) if causes else 0\n        for each in new:\n            await self._ports.store.publish(each)\n",
        becomes="        for each in new:\n            await self._ports.store.publish(each)\n        woken = await self._wake_blocked(causes) if causes else 0\n",
        protects="who publishes again after a crash wakes what is still to be woken",
        killed_by=(
            "tests/integration/test_publish.py::test_who_publishes_again_after_a_crash_wakes_what_is_still_to_be_woken",
        ),
    ),
    Mutation(
        id="answer-message-before-row",
        module=_ANSWERING,
        within="Answering._decided",
        was="        await self._ports.queue.send(message)\n        return await self._ports.store.decide_hook(row.run_id, row.hook_id, answer(message))\n",
        becomes="        standing = await self._ports.store.decide_hook(row.run_id, row.hook_id, answer(message))\n        await self._ports.queue.send(message)\n        return standing\n",
        protects="a caller that dies between the two leaves no answer that nobody reads",
        killed_by=(
            f"{_DOUBTS}test_an_answer_whose_caller_dies_is_taken_once_it_was_sent[queue.send-before-False]",
        ),
    ),
    Mutation(
        id="answer-row-too",
        module=_ANSWERING,
        within="Answering._decided",
        was="        return await self._ports.store.decide_hook(row.run_id, row.hook_id, answer(message))\n",
        becomes="        return __import__('dataclasses').replace(row, status=HookStatus.RECEIVED, decision_id=message.decision_id)\n",
        protects="200 says that this answer was decided, and no other will be",
        killed_by=(f"{_HOOK}test_of_many_answers_at_once_exactly_one_is_taken",),
    ),
    Mutation(
        id="answer-decided-otherwise",
        module=_ANSWERING,
        was="    if row.decision_id != decided:\n",
        becomes="    if False:\n",
        protects="whoever answers otherwise is told so",
        killed_by=(f"{_HOOK}test_the_first_decision_wins_and_its_repetition_is_fine",),
    ),
    Mutation(
        id="answer-too-late",
        module=_ANSWERING,
        was="    if row.status is not HookStatus.RECEIVED:\n",
        becomes="    if False:\n",
        protects="whoever answers a hook that ended is told so",
        killed_by=(f"{_HOOK}test_after_the_run_has_ended_an_answer_is_too_late",),
    ),
    Mutation(
        id="gone-message-before-row",
        module=_ANSWERING,
        within="Answering._expired",
        was="        await self._ports.queue.send(\n            TimerDue(run_id=row.run_id, wait_id=row.hook_id, arm=0, due=row.expires_at)\n        )\n        return await self._ports.store.decide_hook(row.run_id, row.hook_id, expiry(row))\n",
        becomes="        standing = await self._ports.store.decide_hook(row.run_id, row.hook_id, expiry(row))\n        await self._ports.queue.send(\n            TimerDue(run_id=row.run_id, wait_id=row.hook_id, arm=0, due=row.expires_at)\n        )\n        return standing\n",
        protects="an expiry that a caller decides wakes the run (F8)",
        killed_by=(
            f"{_DOUBTS}test_a_caller_that_finds_a_deadline_passed_wakes_the_run_before_it_is_over[store.decide_hook-before-True]",
        ),
    ),
    Mutation(
        id="gone-message-sent",
        module=_ANSWERING,
        within="Answering._expired",
        was="        await self._ports.queue.send(\n            TimerDue(run_id=row.run_id, wait_id=row.hook_id, arm=0, due=row.expires_at)\n        )\n",
        becomes="        TimerDue(run_id=row.run_id, wait_id=row.hook_id, arm=0, due=row.expires_at)\n",
        protects="an expiry that a caller decides wakes the run (F8)",
        killed_by=(
            f"{_DOUBTS}test_a_caller_that_finds_a_deadline_passed_wakes_the_run_before_it_is_over[queue.send-after-True]",
        ),
    ),
    Mutation(
        id="gone-only-when-won",
        module=_ANSWERING,
        within="Answering._expired",
        was="        return await self._ports.store.decide_hook(row.run_id, row.hook_id, expiry(row))\n",
        becomes="        return __import__('dataclasses').replace(row, status=HookStatus.EXPIRED)\n",
        protects="410 is said only when the row says so (F8)",
        killed_by=(f"{_DOUBTS}test_a_caller_says_gone_only_when_the_row_does",),
    ),
    Mutation(
        id="gone-not-early",
        module=_ANSWERING,
        was="if row.expires_at is None or row.expires_at > self._ports.clock.now():",
        becomes="if row.expires_at is None:",
        protects="an answer before the deadline counts",
        killed_by=(f"{_HOOK}test_just_before_the_deadline_an_answer_counts",),
    ),
)

ATTEMPTS = (
    Mutation(
        id="claim-lost",
        module=_ATTEMPT,
        was="        if standing != claimed:\n",
        becomes="        if False:\n",
        protects="of two receives at one moment one makes the attempt",
        killed_by=(f"{_RACES}test_one_of_two_receives_at_the_same_moment_makes_the_attempt",),
    ),
    Mutation(
        id="claim-held",
        module=_ATTEMPT,
        was="    if not received.took_before(before) and before.until > means.ports.clock.now():\n",
        becomes="    if False:\n",
        protects="another message is refused while the attempt is made",
        killed_by=(f"{_RACES}test_another_message_is_refused_while_the_attempt_is_made",),
    ),
    Mutation(
        id="claim-of-the-message-before",
        module=_ATTEMPT,
        was="    if not received.took_before(before) and before.until",
        becomes="    if before.until",
        protects="a message that comes again ends the claim of its earlier receive",
        killed_by=(f"{_RACES}test_a_process_that_dies_costs_an_attempt_once_it_has_claimed_it",),
    ),
    Mutation(
        id="claim-of-an-earlier-receive",
        module=_ATTEMPT,
        was="return message_id == self.message_id and int(count) < self.receive_count",
        becomes="return message_id == self.message_id",
        protects="a message delivered twice at once is worked on once",
        killed_by=(f"{_DOUBTS}test_a_message_delivered_twice_at_once_is_worked_on_once",),
    ),
    Mutation(
        id="claim-not-again",
        module=_ATTEMPT,
        was="    if before.claim is None:\n        return await work.begin(before)\n",
        becomes="    if before.claim is None or received.took_before(before):\n        return await work.begin(before)\n",
        protects="an attempt whose process died is not made again under the same number",
        killed_by=(f"{_RACES}test_an_attempt_that_died_is_recorded_as_interrupted",),
    ),
    Mutation(
        id="attempt-of-its-order",
        module=_ATTEMPT,
        was="    if state.terminal or known.order != attempt.order:\n",
        becomes="    if state.terminal:\n",
        protects="a message of an earlier attempt, or of a step that is over, does nothing",
        killed_by=(f"{_DOUBTS}test_an_attempt_is_not_begun_for_a_loser_that_nobody_told",),
    ),
    Mutation(
        id="outcome-reported-again",
        module=_ATTEMPT,
        was="    if before.outcome is not None:\n        return await work.report(before)\n",
        becomes="    if before.outcome is not None:\n        return AttemptEnd.NOTHING\n",
        protects="an outcome whose report was lost is reported by the next receive",
        killed_by=(f"{_RACES}test_a_report_that_cannot_be_sent_now_is_sent_later",),
    ),
    Mutation(
        id="report-after-row",
        module=_ATTEMPT,
        within="_Attempt._end",
        was="        standing = await self._means.ports.store.put_step(ended)\n        if standing == ended:\n            return await self.report(ended)\n",
        becomes="        await self.report(ended)\n        standing = await self._means.ports.store.put_step(ended)\n        if standing == ended:\n            return AttemptEnd.REPORTED\n",
        protects="a report that comes finds the outcome in the row",
        killed_by=(
            "tests/simulation/test_crash_everywhere.py::test_a_crash_at_any_port_call_changes_nothing[dispatched]",
        ),
    ),
    Mutation(
        id="outcome-dropped",
        module=_ATTEMPT,
        was="        if standing.cancelled:\n            return AttemptEnd.NOTHING\n",
        becomes="",
        protects="the outcome of an attempt that nobody waits for is dropped",
        killed_by=(f"{_RACES}test_the_outcome_of_a_loser_that_was_not_told_in_time_is_dropped",),
    ),
    Mutation(
        id="attempt-lets-go",
        module=_ATTEMPT,
        was="                await self._let_go(claimed)\n",
        becomes="                pass\n",
        protects="a port that fails costs no attempt",
        killed_by=(f"{_RACES}test_a_row_that_cannot_be_put_now_costs_no_attempt",),
    ),
    Mutation(
        id="attempt-fenced",
        module=_ATTEMPT,
        was="                raise TransientError(str(error)) from error\n            raise\n",
        becomes="                return AttemptEnd.NOTHING\n            raise\n",
        protects="an attempt that was overtaken gives its message back",
        killed_by=(f"{_RACES}test_an_overtaken_attempt_cannot_save_a_checkpoint",),
    ),
    Mutation(
        id="late-hooks-of-an-attempt",
        module=_ATTEMPT,
        within="make_attempt",
        was="        await _close_left(means.ports, rows, state, attempt)\n",
        becomes="",
        protects="a hook that a late attempt opened takes no answer",
        killed_by=(
            f"{_DOUBTS}test_a_row_that_comes_after_the_end_is_closed_by_an_attempt_of_its_step",
        ),
    ),
    Mutation(
        id="dispatch-message-after-event",
        module="engine/perform.py",
        within="Performer._start",
        was="        if ready or dispatched:\n",
        becomes="        if ready:\n",
        protects="an attempt's message leaves when its StepStarted is durable",
        killed_by=(
            "tests/integration/test_dispatched_steps.py::test_what_led_to_an_attempt_is_durable_before_its_message_leaves",
        ),
    ),
    Mutation(
        id="dispatch-lost-message",
        module=_DISPATCH,
        was="    if turn.settled:\n        return False\n",
        becomes="    return False\n",
        protects="a message that a dead turn did not send is sent",
        killed_by=(f"{_RACES}test_a_wake_sends_a_lost_message_again",),
    ),
    Mutation(
        id="dispatch-not-for-nothing",
        module=_DISPATCH,
        was="    if turn.settled:\n        return False\n",
        becomes="",
        protects="a turn that has no reason to doubt sends nothing again",
        killed_by=(f"{_RACES}test_other_messages_send_nothing_again",),
    ),
    Mutation(
        id="dispatch-claim-over",
        module=_DISPATCH,
        was="    return row.until <= turn.ports.clock.now()\n",
        becomes="    return False\n",
        protects="a wake-up sends again what its maker can no longer be at",
        killed_by=(f"{_RACES}test_a_wake_sends_again_what_its_maker_can_no_longer_be_at",),
    ),
)

MUTATIONS = (*CALLERS, *ATTEMPTS)
