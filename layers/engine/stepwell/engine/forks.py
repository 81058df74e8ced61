"""Forking runs, as a caller asks for it: checked against the run that is there, then started.

The message carries all that the fork is: the turn that begins it needs no more than the log of the
run that it was forked from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stepwell.authoring.checkpoints import checkpoint_type
from stepwell.core import events as e
from stepwell.core.answers import problems
from stepwell.core.forking import editable, last_copied, write_edits
from stepwell.core.ids import check_key, check_note, run_id_for
from stepwell.core.messages import StartRun
from stepwell.core.payload import codec, digest
from stepwell.core.records import Fork, HookRow, Payload, RunHeader
from stepwell.core.signals import is_subscription
from stepwell.engine.catalogue import Catalogue
from stepwell.engine.headers import found_run, header_of
from stepwell.engine.ports import Ports, RunRows
from stepwell.engine.values import Values
from stepwell.errors import ForkRefused, IdempotencyConflict, UsageError


class Forks:
    """Makes forks of the runs of one deployment. See `Client.fork`."""

    def __init__(self, ports: Ports, values: Values, catalogue: Catalogue) -> None:
        self._ports = ports
        self._values = values
        self._catalogue = catalogue

    async def fork(
        self,
        source_id: str,
        *,
        at: int | None,
        input: Mapping[str, Any] | None,
        edits: Mapping[int, Any],
        run_id: str | None,
        key: str | None,
        actor: str | None,
        tags: tuple[str, ...],
    ) -> tuple[str, bool]:
        """The fork's id, and whether it was there already."""
        check_note("actor", actor)
        for what, given in (("input", input), ("edits", edits)):
            if given is not None and not isinstance(given, Mapping):
                raise UsageError(f"{what}: give a mapping, not {given!r:.100}")
        rows = await self._ports.store.load(source_id)
        header = found_run(rows.header, source_id)
        if header.stream_run is not None:
            what = "a subscription" if is_subscription(source_id) else "a stream run"
            raise ForkRefused(
                source_id,
                f"is {what}: it has signals, which a fork has not; start another stream run",
            )
        events = [event for commit in rows.commits for event in commit.events]
        last = _place(header, events, at)
        texts = self._edits(rows, events[:last], edits)
        text, input_text = await self._input(header, input)
        made = digest(f"{source_id} {last} {input_text} {write_edits(texts)}")
        fork_id = self._name(header.workflow, run_id, key)
        known = await self._ports.store.get_header(fork_id)
        if known is None:
            values = self._values.of(fork_id)
            message = await self._message(header, events[0], values, text)
            kept = {n: await values.put(text, f"value for event {n}") for n, text in texts.items()}
            fork = Fork(
                run_id=source_id,
                event=last,
                started_at=events[0].at,
                edits=await values.put(write_edits(kept), "edits of a fork") if kept else None,
                actor=actor,
            )
            changes = {"run_id": fork_id, "input_digest": made, "idempotency_key": key}
            message = message.model_copy(update={**changes, "tags": tags, "forked_from": fork})
            await self._ports.queue.send(message)
            known = await self._ports.store.put_header(header_of(message))
            repeated = known.created_at != message.created_at
        else:
            repeated = True
        found_run(known, fork_id)
        if known.input_digest != made:
            raise IdempotencyConflict(fork_id, key or fork_id)
        return fork_id, repeated

    def _name(self, workflow: str, run_id: str | None, key: str | None) -> str:
        if run_id is not None:
            return check_key("run", run_id)
        if key is None:
            return self._ports.ids.new_id()
        return run_id_for(workflow, check_key("idempotency", key))

    def _edits(
        self, rows: RunRows, events: Sequence[e.Event], edits: Mapping[int, Any]
    ) -> dict[int, Payload]:
        """The JSON of each edited value. Raises `ForkRefused` on one that cannot stand there."""
        run_id = rows.header.run_id if rows.header is not None else ""
        hooks = {row.hook_id: row for row in rows.hooks}
        texts: dict[int, Payload] = {}
        for number, value in edits.items():
            event = events[number - 1] if _is_number(number, events) else None
            if event is None or not editable(event):
                what = "not among those that are copied" if event is None else f"a {event.type}"
                raise ForkRefused(
                    run_id,
                    f"event {number!r} is {what}: the result of a StepCompleted and the payload of a "
                    "HookReceived can be edited, up to the place of the fork",
                )
            owner = f"value for event {number}"
            texts[number] = codec(checkpoint_type(value, None), owner).encode(value)
            if isinstance(event, e.HookReceived):
                _check_answer(run_id, number, hooks.get(event.hook), texts[number])
        return texts

    async def _input(
        self, header: RunHeader, given: Mapping[str, Any] | None
    ) -> tuple[str | None, str]:
        """The new input's JSON, None for the old one; and what tells inputs apart."""
        if given is None:
            return None, header.input_digest
        checked = await self._catalogue.check(header.workflow, given)
        return checked.text, checked.digest

    async def _message(
        self,
        header: RunHeader,
        first: e.Event,
        values: Values,
        text: str | None,
    ) -> StartRun:
        assert isinstance(first, e.RunStarted)
        owner = f"input of workflow {header.workflow!r}"
        return StartRun(
            run_id=header.run_id,
            workflow=first.workflow,
            version=first.version,
            input=await (values.own(first.input) if text is None else values.put(text, owner)),
            input_digest="",
            seed=first.seed,
            created_at=self._ports.clock.now(),
            context=None if first.context is None else await values.own(first.context),
            guards=first.guards,
        )


def _is_number(number: object, events: Sequence[e.Event]) -> bool:
    return type(number) is int and 1 <= number <= len(events)


def _place(header: RunHeader, events: Sequence[e.Event], at: int | None) -> int:
    if not events:
        raise ForkRefused(header.run_id, "has not begun; fork it when it has, or start another run")
    if at is not None and not _is_number(at, events):
        raise ForkRefused(
            header.run_id, f"has events 1 to {len(events)}, and none numbered {at!r} to fork at"
        )
    return last_copied(events, at)


def _check_answer(run_id: str, number: int, row: HookRow | None, text: str) -> None:
    """A copied answer has no row; then the code alone tells whether another one fits."""
    found = [] if row is None or row.schema is None else problems(row.schema, text)
    if found:
        told = "; ".join(f"{each['pointer'] or '/'}: {each['message']}" for each in found)
        raise ForkRefused(
            run_id, f"the value for event {number} does not fit its hook: {told}", found
        )
