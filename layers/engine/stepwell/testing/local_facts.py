"""Facts of the runs in a local file: the ports' own, and what its queues and timers hold."""

from __future__ import annotations

from stepwell.adapters.local.wiring import LocalPorts
from stepwell.core.messages import load_attempt
from stepwell.testing.facts import Lists, RunFacts, gather_lists, gather_run

#: Dead letters of which the run has not been told yet count as messages: somebody will see to them.
_MESSAGE = """
SELECT 1 FROM messages WHERE run_id = ?
UNION ALL SELECT 1 FROM dead_letters WHERE run_id = ? AND taken_at IS NULL LIMIT 1
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
