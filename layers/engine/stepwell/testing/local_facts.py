"""Facts of the runs in a local file: the ports' own, and what its queues and timers hold."""

from __future__ import annotations

from collections.abc import Iterable

from stepwell.adapters.local.wiring import LocalPorts
from stepwell.core.messages import load_attempt
from stepwell.core.signals import StreamKey
from stepwell.testing.facts import (
    Lists,
    RunFacts,
    StreamFacts,
    gather_lists,
    gather_run,
    gather_stream,
)

#: Dead letters of which the run has not been told yet count as messages: somebody will see to them.
_MESSAGE = """
SELECT 1 FROM messages WHERE run_id = ?
UNION ALL SELECT 1 FROM dead_letters WHERE run_id = ? AND taken_at IS NULL LIMIT 1
"""
_STREAMS = """
SELECT stream, stream_run FROM signal_batches UNION SELECT stream, stream_run FROM subscriptions
"""
_ON_ITS_WAY = """
SELECT 1 FROM signal_messages WHERE owner = ?
UNION ALL SELECT 1 FROM signal_timers WHERE owner = ? LIMIT 1
"""
_DEAD_ATTEMPTS = "SELECT body FROM step_dead_letters WHERE run_id = ? AND taken_at IS NULL"


async def local_facts(local: LocalPorts, run_id: str) -> RunFacts:
    """All that can be seen of one run."""
    return await gather_run(
        local.store,
        run_id,
        blobs=local.blobs,
        timer=await local.timers.next_due(run_id),
        attempts=await attempts_under_way(local, run_id),
        in_queue=bool(local.database.query(_MESSAGE, run_id, run_id)),
    )


async def local_streams(local: LocalPorts, keys: Iterable[StreamKey]) -> list[StreamFacts]:
    """All that can be seen of stream runs, of those in the file and of these."""
    rows = local.database.query(_STREAMS)
    known = {StreamKey(stream, run) for stream, run in rows}
    streams = local.ports.streams
    return [
        await gather_stream(
            streams, key, quiet=not local.database.query(_ON_ITS_WAY, key.owner, key.owner)
        )
        for key in sorted({*known, *keys})
    ]


async def attempts_under_way(local: LocalPorts, run_id: str) -> frozenset[int]:
    """Dispatched attempts that are sent or being made, by the number of their event."""
    rows, now = (await local.store.load(run_id)).steps, local.ports.clock.now()
    claimed = {
        row.order
        for row in rows
        if row.claim is not None and row.outcome is None and not row.cancelled and row.until > now
    }
    dead = [load_attempt(body) for (body,) in local.database.query(_DEAD_ATTEMPTS, run_id)]
    sent = await local.step_queue.attempts_of(run_id)
    return frozenset(claimed | {attempt.order for attempt in [*sent, *dead]})


async def all_local_facts(local: LocalPorts) -> tuple[Lists, list[RunFacts]]:
    """What the lists say, and all that can be seen of each run."""
    lists = await gather_lists(local.store)
    ids = [run_id for (run_id,) in local.database.query("SELECT run_id FROM runs ORDER BY run_id")]
    return lists, [await local_facts(local, run_id) for run_id in ids]
