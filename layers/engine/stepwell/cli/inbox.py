"""`stepwell runs inbox`: what was sent to a run, and sending it something."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from stepwell.cli.load import read_json
from stepwell.cli.options import AsJson, Command, Group, RunId
from stepwell.cli.render import Output, compact, one_line, short, talk
from stepwell.cli.target import Target, on_target, suggest_worker
from stepwell.client import InboxEntry
from stepwell.shapes import entry_shape, iso

app = typer.Typer(cls=Group, no_args_is_help=True, help="What was sent to a run.")

_COLUMNS = ("entry", "key", "sent", "by", "event", "value")


@app.command(cls=Command)
@on_target
def put(
    target: Target,
    *,
    run: RunId,
    key: Annotated[str, typer.Argument(metavar="KEY", help="What the run looks it up by.")],
    value: Annotated[
        str, typer.Option("--value", metavar="JSON|-|@FILE", help="What is sent.")
    ] = "true",
    entry_id: Annotated[
        str | None,
        typer.Option("--entry-id", help="The same id is the same entry.", show_default=False),
    ] = None,
    actor: Annotated[
        str | None,
        typer.Option("--actor", help="Who sends it, for the record.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Put an entry into a run's inbox, and wake what waits for input. Nothing is overwritten."""
    out = Output(as_json=as_json)
    sent = read_json(value, "--value").value
    with target.open_existing() as opened:
        putting = opened.client.put_inbox(run, key, sent, entry_id=entry_id, actor=actor)
        entry = asyncio.run(putting)
    if as_json:
        out.json(entry_shape(entry))
        return
    out.line(f"run {entry.run_id}: entry {one_line(entry.entry_id)} is in its inbox")
    suggest_worker(target, "a worker carries the run on")


@app.command("list", cls=Command)
@on_target
def list_entries(target: Target, *, run: RunId, as_json: AsJson = False) -> None:
    """List the entries of a run's inbox, oldest first."""
    out = Output(as_json=as_json)
    with target.open_existing() as opened:
        entries = asyncio.run(opened.client.list_inbox(run))
    if as_json:
        out.json({"run_id": run, "entries": [entry_shape(entry) for entry in entries]})
    elif entries:
        out.table(_COLUMNS, [_row(entry) for entry in entries])
    else:
        talk("nothing was sent to this run")


def _row(entry: InboxEntry) -> tuple[str, ...]:
    return (
        one_line(entry.entry_id),
        one_line(entry.key),
        iso(entry.sent_at),
        "" if entry.actor is None else short(entry.actor),
        "" if entry.event is None else str(entry.event),
        short(compact(entry.value)),
    )
