"""Published workflows: what a deployment says of its workflows to those who have no code.

A definition is published by whoever has the code; a start by name is checked against it. Runs that
were blocked are woken when what is published of their workflow has changed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from stepwell.core.answers import problems
from stepwell.core.definitions import WorkflowDefinition, published, version_order
from stepwell.core.ids import is_name
from stepwell.core.inputs import filled_input, input_digest
from stepwell.core.messages import Wake
from stepwell.core.payload import codec
from stepwell.core.records import Payload, PublishedWorkflow
from stepwell.engine.ports import Ports
from stepwell.errors import InputRejected, WorkflowNotFound

_FIRST_VERSION = "1"


class Publication(NamedTuple):
    """What was published: every definition, the names of those that are news, runs woken."""

    workflows: tuple[PublishedWorkflow, ...]
    changed: tuple[str, ...]
    woken: int


class NamedStart(NamedTuple):
    """A start by name, checked as far as it can be: version and input to record, and its digest.

    `context` is what the run's context is at first, as JSON. `stream`: it owns a stream run.
    """

    version: str
    text: str
    digest: str
    context: Payload | None = None
    stream: bool = False


class Catalogue:
    """The published workflows of one deployment."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    async def publish(
        self, definitions: Iterable[WorkflowDefinition], *, wake_all: bool
    ) -> Publication:
        """Publish, and wake blocked runs: of workflows that have changed, or of all of these."""
        now = self._ports.clock.now()
        workflows = tuple(published(definition, now) for definition in definitions)
        standing = [await self._ports.store.get_definition(each.name) for each in workflows]
        new = [
            each
            for each, current in zip(workflows, standing, strict=True)
            if current is None or current.digest != each.digest
        ]
        changed = [
            each
            for each, current in zip(workflows, standing, strict=True)
            if each in new and not _is_older(each, current)
        ]
        # By digest, so that the wake-ups of many workers that come up at once are one.
        causes = {each.name: f"published {each.digest}" for each in changed}
        if wake_all:
            causes = dict.fromkeys(
                (each.name for each in workflows), f"published {self._ports.ids.new_id()}"
            )
        # Before the rows: who comes back after a crash in between finds the news still to be told.
        woken = await self._wake_blocked(causes) if causes else 0
        for each in new:
            await self._ports.store.publish(each)
        return Publication(workflows, tuple(each.name for each in changed), woken)

    async def _wake_blocked(self, causes: Mapping[str, str]) -> int:
        """Wake the blocked runs of these workflows, each for its cause. Returns how many."""
        woken = 0
        cursor: str | None = None
        while True:
            page = await self._ports.store.list_runs(attention="BLOCKED", limit=200, cursor=cursor)
            for header in page.items:
                cause = causes.get(header.workflow.partition("/")[0])
                if cause is not None:
                    await self._ports.queue.send(Wake(run_id=header.run_id, cause=cause))
                    woken += 1
            cursor = page.cursor
            if cursor is None:
                return woken

    async def check_text(self, workflow: str, text: str) -> NamedStart:
        """As `check`, of an input that is JSON text already."""
        return await self.check(workflow, json.loads(text))

    async def check(self, workflow: str, given: Mapping[str, Any]) -> NamedStart:
        """A start by name. Raises `WorkflowNotFound`, `InputRejected`, `PayloadError`.

        While nothing at all is published it is taken as it is, and the worker decides.
        """
        if not is_name(workflow):
            raise WorkflowNotFound(workflow)
        text = codec(dict[str, Any], f"input of workflow {workflow!r}").encode(dict(given))
        known = await self._ports.store.get_definition(workflow)
        if known is None:
            if (await self._ports.store.list_definitions(limit=1)).items:
                raise WorkflowNotFound(workflow)
            return NamedStart(_FIRST_VERSION, text, input_digest(given, "{}"))
        errors = problems(known.input_schema, text)
        if errors:
            raise InputRejected(workflow, errors)
        schema = known.input_schema
        return NamedStart(
            known.version,
            filled_input(given, schema),
            input_digest(given, schema),
            stream=known.signals is not None,
        )


def _is_older(workflow: PublishedWorkflow, current: PublishedWorkflow | None) -> bool:
    return current is not None and version_order(workflow.version) < version_order(current.version)
