"""Headers of runs that begin, as functions of the messages that start them; and chains of them."""

from __future__ import annotations

from stepwell.core.messages import StartRun
from stepwell.core.records import RunHeader, RunStatus
from stepwell.engine.ports import Ports
from stepwell.errors import RunDeleted, RunNotFound


def header_of(message: StartRun) -> RunHeader:
    """The header of a new run; the same from the message as from the caller."""
    return RunHeader(
        run_id=message.run_id,
        workflow=message.workflow,
        version=message.version,
        status=RunStatus.PENDING,
        input=message.input,
        input_digest=message.input_digest,
        seed=message.seed,
        created_at=message.created_at,
        updated_at=message.created_at,
        idempotency_key=message.idempotency_key,
        tags=message.tags,
        context=message.context,
        forked_from=message.forked_from,
        guards=message.guards,
        parent=message.parent,
        continued_from=message.continued_from,
        stream_run=message.stream_run,
    )


def found_run(header: RunHeader | None, run_id: str) -> RunHeader:
    """The header of a run that is there. Raises `RunNotFound`, `RunDeleted`."""
    if header is None:
        raise RunNotFound(run_id)
    if header.deleted_at is not None:
        raise RunDeleted(run_id)
    return header


async def start_from_turn(ports: Ports, message: StartRun) -> RunHeader:
    """Start a run that a turn asks for, whose event is durable: the row, then the message.

    Returns the header that stands.

    A turn is taken again until it has done both, so the row may come first, as it may not from a
    caller.
    """
    standing = await ports.store.put_header(header_of(message))
    await ports.queue.send(message)
    return standing


async def chain_of(ports: Ports, run_id: str) -> tuple[RunHeader, ...]:
    """The headers of a run's chain, the first one first. Raises `RunNotFound`."""
    chain = [found_run(await ports.store.get_header(run_id), run_id)]
    while (before := chain[0].continued_from) is not None:
        header = await ports.store.get_header(before)
        if header is None:
            break
        chain.insert(0, header)
    while (after := chain[-1].continued_to) is not None:
        header = await ports.store.get_header(after)
        if header is None:
            break
        chain.append(header)
    return tuple(chain)


async def last_link(ports: Ports, run_id: str) -> RunHeader | None:
    """The header of the last run in the chain that begins with this one.

    One that is CONTINUED when its successor has no header yet. None if there is no such run.
    """
    header = await ports.store.get_header(run_id)
    while header is not None and header.continued_to is not None:
        successor = await ports.store.get_header(header.continued_to)
        if successor is None:
            break
        header = successor
    return header
