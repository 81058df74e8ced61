"""Starts: a message that is sufficient by itself is sent, then the run's header is put.

Whoever comes second, caller or turn, finds the header and adopts it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stepwell.core.contexts import begun_with, identified, named_context
from stepwell.core.definitions import WorkflowDefinition
from stepwell.core.ids import run_id_for
from stepwell.core.messages import StartRun
from stepwell.core.records import Guards, RunHeader
from stepwell.core.signals import DEFAULT_RUN
from stepwell.engine.catalogue import NamedStart
from stepwell.engine.headers import header_of
from stepwell.engine.ports import Ports
from stepwell.engine.values import Values
from stepwell.errors import IdempotencyConflict, RunDeleted


@dataclass(frozen=True, slots=True, kw_only=True)
class StartOptions:
    """What a start gives a run besides its input."""

    idempotency_key: str | None = None
    tags: tuple[str, ...] = ()
    context: Any = None
    guards: Guards | None = None


class Starts:
    """Starts the runs of one deployment. See `Client.start`."""

    def __init__(self, ports: Ports, values: Values) -> None:
        self._ports = ports
        self._values = values

    async def start(
        self, workflow: str, start: NamedStart, options: StartOptions
    ) -> tuple[str, bool]:
        """The run's id, and whether an earlier start had made it. A stream run's name is its key.

        Raises `PayloadError`, `RunDeleted`, and `IdempotencyConflict` when the key was used with
        another input.
        """
        key = options.idempotency_key
        if start.stream and key is None:
            key = DEFAULT_RUN
        run_id = self._ports.ids.new_id() if key is None else run_id_for(workflow, key)
        if key is not None:
            known = await self._ports.store.get_header(run_id)
            if known is not None:
                return _same_start(known, start.digest, key), True
        values = self._values.of(run_id)
        message = StartRun(
            run_id=run_id,
            workflow=workflow,
            version=start.version,
            input=await values.put(start.text, f"input of workflow {workflow!r}"),
            input_digest=start.digest,
            seed=self._ports.ids.new_id(),
            created_at=self._ports.clock.now(),
            idempotency_key=key,
            tags=options.tags,
            context=start.context,
            guards=options.guards,
            stream_run=key if start.stream else None,
        )
        await self._ports.queue.send(message)
        standing = await self._ports.store.put_header(header_of(message))
        # The seed is drawn for each start, so another one is that of an earlier start.
        repeated = standing.seed != message.seed
        return _same_start(standing, start.digest, key or ""), repeated


def _same_start(standing: RunHeader, given: str, key: str) -> str:
    if standing.deleted_at is not None:
        raise RunDeleted(standing.run_id)
    if standing.input_digest != given:
        raise IdempotencyConflict(standing.run_id, key)
    return standing.run_id


def started_with(start: NamedStart, definition: WorkflowDefinition, context: Any) -> NamedStart:
    """A start with the code, and with a context: the given one, or the one its type makes.

    Raises `PayloadError` on one that does not fit, `UsageError` where the workflow has none.
    """
    text = begun_with(definition.context, context, definition.name)
    # One that its type makes is recorded, so that another default in later code changes nothing;
    # it was not given, so it is no part of what the start is known by.
    known = start.digest if context is None else identified(start.digest, text or "")
    return start._replace(context=text, digest=known)


def named_with(start: NamedStart, workflow: str, context: Any) -> NamedStart:
    """A start without the code, and with a context as JSON; the worker sees whether it fits.

    Raises `PayloadError` on what is no JSON, or too large.
    """
    text = named_context(context, workflow)
    if text is None:
        return start
    return start._replace(context=text, digest=identified(start.digest, text))
