"""The contract suites of queue and timers, on the emulator's SQS and Scheduler."""

from __future__ import annotations

from stepwell.core.messages import TimerDue, load_message
from tests.contract import test_queue, test_timers
from tests.contract.given import MINUTE, START, Deployment, run, take
from tests.e2e.ports import laws_of

globals().update(
    laws_of(
        test_queue,
        without=[
            # SQS has no way to reject: a message is received too often, or it is not dead.
            "test_a_rejected_message_becomes_a_dead_letter_at_once",
            "test_a_stale_receipt_has_no_effect",
            # SQS promises no order between groups, and the emulator hands out the oldest message.
            "test_no_group_starves_behind_a_busy_one",
        ],
    )
    | laws_of(
        test_timers,
        without=[
            # What the inbox keeps back for some minutes cannot be called back.
            "test_a_cancelled_timer_does_not_fire",
            "test_timers_of_odd_ids_do_not_touch_each_other",
            # SQS delays by whole seconds.
            "test_the_message_stands_in_the_group_of_its_run",
        ],
    )
)
HOUR = 60 * MINUTE


def test_a_schedule_fires_when_due_and_not_before(deployment: Deployment) -> None:
    async def scenario() -> None:
        await deployment.timers.start("run", "wait", 1, START + HOUR)
        deployment.clock.advance(HOUR - 1000)
        assert await deployment.fire_due() == 0
        assert await deployment.consumer.receive() is None
        deployment.clock.advance(1000)
        assert await deployment.fire_due() == 1
        fired = load_message((await take(deployment.consumer)).body)
        assert fired == TimerDue(run_id="run", wait_id="wait", arm=1, due=START + HOUR)

    run(scenario())


def test_a_scheduled_timer_is_kept_and_called_back(deployment: Deployment) -> None:
    async def scenario() -> None:
        for arm in (1, 2):
            await deployment.timers.start("run", "wait", arm, START + HOUR)
            await deployment.timers.start("run", "wait", arm, START + HOUR)
        await deployment.timers.cancel("run", "wait", 1)
        deployment.clock.advance(HOUR)
        assert await deployment.fire_due() == 1
        fired = load_message((await take(deployment.consumer)).body)
        assert fired == TimerDue(run_id="run", wait_id="wait", arm=2, due=START + HOUR)
        assert await deployment.consumer.receive() is None

    run(scenario())
