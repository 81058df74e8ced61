"""What the processes of a simulation do: a turn, an attempt, a caller's request, a sweep.

Each does what its counterpart on Lambda does with a message: acknowledge it when its work is done,
give it back when that failed. Both are calls that may be lost, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from stepwell.core.messages import load_attempt, load_message, load_signal
from stepwell.core.records import Millis
from stepwell.engine.attempt import StepBusy
from stepwell.engine.journal import Fenced
from stepwell.engine.ports import Delivery, TransientError
from stepwell.engine.sequencing import Sequencer
from stepwell.engine.sweep import Sweep
from stepwell.errors import StepwellError
from stepwell.testing.promises import PromisingClient
from stepwell.testing.simulation.cluster import (
    ATTEMPT_TIME,
    MAX_RECEIVE_COUNT,
    TURN_TIME,
    Cluster,
    Request,
)
from stepwell.testing.simulation.processes import Denied, Process
from stepwell.testing.simulation.queues import Letter, SimulatedQueue

#: How soon a message comes again, by how often it was received.
_BACK_OFF: tuple[Millis, ...] = (1_000, 2_000, 4_000, 8_000, 16_000, 32_000)


def begin_turn(cluster: Cluster, process: Process, letter: Letter) -> None:
    """Let a process take the turn of a message."""
    delivery = cluster.queue.receive(letter)
    if delivery is not None:
        ends_at = cluster.loop.now() + TURN_TIME
        what = f"turn of {letter.message_id}"
        process.begin(what, _turn(cluster, process, delivery, ends_at), ends_at)


async def _turn(cluster: Cluster, process: Process, delivery: Delivery, ends_at: Millis) -> None:
    assert process.engine is not None
    message = load_message(delivery.body)
    try:
        end = await process.engine.take_turn(
            message,
            message_id=delivery.message_id,
            receive_count=delivery.receive_count,
            last=delivery.receive_count >= MAX_RECEIVE_COUNT,
            time_left=ends_at - cluster.loop.now(),
        )
    except Exception as error:
        await _give_back(cluster, process, cluster.queue, delivery, error)
        return
    cluster.record.turns.append(end)
    await _acknowledge(cluster, process, cluster.queue, delivery)


def begin_numbering(cluster: Cluster, process: Process, letter: Letter) -> None:
    """Let a process number the signals of a stream run."""
    batch = cluster.signals.batch_of(letter)
    if batch:
        ends_at = cluster.loop.now() + TURN_TIME
        what = f"signals from {letter.message_id}"
        process.begin(what, _number(cluster, process, batch), ends_at)


async def _number(cluster: Cluster, process: Process, batch: Sequence[Delivery]) -> None:
    assert process.outside is not None
    queue = cluster.signals
    try:
        sent = [load_signal(delivery.body) for delivery in batch]
        cluster.record.numbered += list(
            await Sequencer(process.outside, cluster.registry.stream_step).take(sent)
        )
    except Exception as error:
        if not isinstance(error, TransientError | Denied):
            cluster.record.unexpected.append(error)
        back = partial(queue.give_back_all, batch, delay=_delay(batch[0]))
        with suppress(TransientError, Denied):
            await process.call("g.give_back", back)
        return
    with suppress(TransientError, Denied):  # then they come once more
        if await process.call("g.delete", partial(queue.delete_all, batch)):
            cluster.record.acknowledged += [(queue.name, delivery.body) for delivery in batch]


def _delay(delivery: Delivery) -> Millis:
    return _BACK_OFF[min(delivery.receive_count, len(_BACK_OFF)) - 1]


def begin_attempt(
    cluster: Cluster, process: Process, letter: Letter, delivery: Delivery | None
) -> None:
    """Let a process make the attempt of a message."""
    if delivery is not None:
        ends_at = cluster.loop.now() + ATTEMPT_TIME
        what = f"attempt of {letter.message_id}"
        process.begin(what, _attempt(cluster, process, delivery, ends_at), ends_at)


async def _attempt(cluster: Cluster, process: Process, delivery: Delivery, ends_at: Millis) -> None:
    assert process.engine is not None
    try:
        end = await process.engine.run_attempt(
            load_attempt(delivery.body),
            message_id=delivery.message_id,
            receive_count=delivery.receive_count,
            time_left=ends_at - cluster.loop.now(),
        )
    except Exception as error:
        await _give_back(cluster, process, cluster.steps, delivery, error)
        return
    cluster.record.attempts.append(end)
    await _acknowledge(cluster, process, cluster.steps, delivery)


async def _acknowledge(
    cluster: Cluster, process: Process, queue: SimulatedQueue, delivery: Delivery
) -> None:
    with suppress(TransientError, Denied):  # then it comes once more
        if await process.call(f"{queue.name}.delete", partial(queue.delete, delivery)):
            cluster.record.acknowledged.append((queue.name, delivery.body))


async def _give_back(
    cluster: Cluster,
    process: Process,
    queue: SimulatedQueue,
    delivery: Delivery,
    error: Exception,
) -> None:
    if not isinstance(error, TransientError | Fenced | Denied):
        cluster.record.unexpected.append(error)
    delay = _delay(delivery)
    if isinstance(error, StepBusy):
        delay = max(error.until - cluster.loop.now(), 1_000)
    with suppress(TransientError, Denied):  # then it comes when its visibility is over
        name = f"{queue.name}.give_back"
        await process.call(name, partial(queue.give_back, delivery, delay=delay))


def begin_request(cluster: Cluster, request: Request) -> None:
    """Let somebody from outside ask, through a process of his own."""
    request.begun = True
    process = cluster.new_process(f"caller {request.name}")
    cluster.callers.append(process)
    process.begin("asks", _request(cluster, process, request), None)


async def _request(cluster: Cluster, process: Process, request: Request) -> None:
    assert process.outside is not None
    client = PromisingClient(process.outside, cluster.settings, promises=cluster.promises)
    try:
        request.result = await request.ask(client)
        request.error = None
    except (TransientError, Denied):
        request.begun = False  # he is told to try again
    except StepwellError as error:
        request.error = error


def begin_sweep(cluster: Cluster) -> None:
    """Let the sweep take all dead letters, and wake what is overdue."""
    cluster.record.swept += 1
    process = cluster.sweeper
    process.begin("sweeps", _sweep(cluster, process), None)


async def _sweep(cluster: Cluster, process: Process) -> None:
    assert process.outside is not None
    sweep = Sweep(process.outside)
    with suppress(TransientError, Denied):
        for queue in (cluster.queue, cluster.steps):
            for letter in list(queue.dead):
                await _bury(sweep, queue, letter)
        await sweep.wake_overdue(lambda: TURN_TIME)
        await sweep.delete_expired(lambda: TURN_TIME)


async def _bury(sweep: Sweep, queue: SimulatedQueue, letter: Letter) -> None:
    read = load_message if queue.name == "m" else load_attempt
    await sweep.take_dead_letter(
        run_id=letter.group, message=read(letter.body), reason="dead letter", body=letter.body
    )
    if letter in queue.dead:  # else it was sent again meanwhile
        queue.dead.remove(letter)
        queue.buried.append(letter)
