"""`stepwell runs`: what runs there are, what became of them, and what they did."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum
from typing import Annotated

import typer

from stepwell import shapes
from stepwell.cli import control, inbox
from stepwell.cli.failing import BadInput, NotFound
from stepwell.cli.options import AsJson, Command, Cursor, Group, Limit, RunId
from stepwell.cli.render import Output, compact, lines, one_line, plain, several, short, talk
from stepwell.cli.target import Target, on_target
from stepwell.cli.timeline import COLUMNS, timeline
from stepwell.client import Client, OutputChunk
from stepwell.core.attributes import read_wanted
from stepwell.core.records import AttentionKind, RunHeader, RunStatus, Wait
from stepwell.core.state import fold
from stepwell.errors import Failure

app = typer.Typer(cls=Group, no_args_is_help=True, help="Look at runs, and at what they do.")
app.add_typer(inbox.app, name="inbox")
for _command in (
    control.cancel,
    control.pause,
    control.resume,
    control.retry,
    control.fork,
    control.wake,
    control.delete,
):
    app.command(cls=Command)(_command)


class Standing(StrEnum):
    """How a run stands, as `--status` names it: a status, or what calls for attention."""

    PENDING = "pending"
    SUSPENDED = "suspended"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    CONTINUED = "continued"
    BLOCKED = "blocked"
    STUCK = "stuck"
    PAUSED = "paused"

    @property
    def status(self) -> RunStatus | None:
        """The status it is, if it is one."""
        return RunStatus[self.name] if self.name in RunStatus.__members__ else None

    @property
    def attention(self) -> AttentionKind | None:
        """The note on the header that it is, if it is one."""
        if self is Standing.BLOCKED:
            return "BLOCKED"
        if self is Standing.PAUSED:
            return "PAUSED"
        return "STUCK" if self is Standing.STUCK else None


_LIST_COLUMNS = ("run", "workflow", "status", "created", "updated", "waiting")


@app.command("list", cls=Command)
@on_target
def list_runs(
    target: Target,
    *,
    workflow: Annotated[
        str | None, typer.Option("--workflow", help="Of this workflow only.", show_default=False)
    ] = None,
    status: Annotated[
        Standing | None,
        typer.Option(
            "--status",
            case_sensitive=False,
            metavar="STATUS",
            help=(
                f"With this status only: {', '.join(RunStatus).lower()}; "
                "or a note that stands: blocked, stuck, paused."
            ),
            show_default=False,
        ),
    ] = None,
    tag: Annotated[
        list[str] | None,
        typer.Option("--tag", help="With this tag only. May be repeated.", show_default=False),
    ] = None,
    attribute: Annotated[
        list[str] | None,
        typer.Option(
            "--attribute",
            metavar="NAME=VALUE",
            help="With this attribute only. May be repeated.",
            show_default=False,
        ),
    ] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """List runs, newest first."""
    out = Output(as_json=as_json)
    with target.open_existing() as opened:
        listing = opened.client.list_runs(
            workflow=workflow,
            status=None if status is None else status.status,
            attention=None if status is None else status.attention,
            tags=tag or (),
            attributes=dict(read_wanted(each) for each in attribute or ()),
            limit=limit,
            cursor=cursor,
        )
        try:
            page = asyncio.run(listing)
        except ValueError as error:
            raise BadInput(f"--cursor: {error}") from None
    if as_json:
        runs = [shapes.run_summary(header) for header in page.items]
        out.json({"runs": runs, "cursor": page.cursor})
        return
    if page.items:
        out.table(_LIST_COLUMNS, [_row(header) for header in page.items])
    else:
        talk("no runs" if page.cursor is None else "no runs so far")
    if page.cursor is not None:
        talk(f"more: --cursor {page.cursor}")


def _row(header: RunHeader) -> tuple[str, ...]:
    return (
        header.run_id,
        header.workflow,
        header.status if header.attention is None else header.attention.kind,
        shapes.iso(header.created_at),
        shapes.iso(header.updated_at),
        short(", ".join(f"{wait.kind} {wait.id}" for wait in header.waiting)),
    )


@app.command(cls=Command)
@on_target
def show(target: Target, *, run: RunId, as_json: AsJson = False) -> None:
    """Show one run: status, input, result or error, and what it waits for."""
    out = Output(as_json=as_json)
    with target.open_existing() as opened:
        header = asyncio.run(_with_progress(opened.client, run))
    show_run(out, header)
    if not as_json:
        for hint in _hints(header, target):
            talk(hint)


def _hints(header: RunHeader, target: Target) -> Iterator[str]:
    """What can be done about a run that waits for somebody."""
    run, kinds = f"{header.run_id}{target.flag}", {wait.kind for wait in header.waiting}
    note = None if header.attention is None else header.attention.kind
    if note == "BLOCKED":
        yield f"once code that fits is there: stepwell runs wake {run}"
    elif note == "STUCK":
        yield f"once its cause is mended: stepwell runs wake {run}"
    elif note == "PAUSED":
        yield f"it goes on with: stepwell runs resume {run}"
    if "hook" in kinds:
        yield f"its open hooks: stepwell hooks list --run {run}"
    if "input" in kinds:
        put = f"stepwell runs inbox put {header.run_id} KEY --value JSON{target.flag}"
        yield f"give it input: {put}"


async def _with_progress(client: Client, run: str) -> RunHeader:
    """The run, with how far its maps have come by now."""
    header = await client.get(run)
    if not any(wait.away for wait in header.waiting):
        return header
    come = {each.id: each.completed + each.failed for each in await client.progress(run)}
    waiting = tuple(
        replace(wait, done=come.get(wait.id)) if wait.away else wait for wait in header.waiting
    )
    return replace(header, waiting=waiting)


def show_run(out: Output, header: RunHeader) -> None:
    """A run, in the form that was asked for."""
    if out.as_json:
        out.json(shapes.run_shape(header))
    else:
        show_facts(out, header)


def show_facts(out: Output, header: RunHeader) -> None:
    """A run for people: its facts, then where its error comes from."""
    out.facts(run_facts(header))
    if header.error is not None:
        for line in trace(header.error):
            out.line(line)


def trace(failure: Failure) -> Iterator[str]:
    """What there is to read of a failure: its cause first, as Python shows it."""
    if failure.cause is not None:
        yield from trace(failure.cause)
        yield ""
    if failure.traceback:
        yield "Traceback (most recent call last):"
        yield from map(plain, failure.traceback.splitlines())
    yield from map(plain, str(failure).splitlines())


def run_facts(header: RunHeader) -> dict[str, str]:
    """What there is to say of a run, by name; values in full."""
    facts = {
        "run": header.run_id,
        "workflow": f"{header.workflow} (version {header.version})",
        "status": header.status.value,
        "created": shapes.iso(header.created_at),
        "updated": shapes.iso(header.updated_at),
        "input": compact(json.loads(header.input)),
    }
    if header.attention is not None:
        facts[header.attention.kind.lower()] = lines(header.attention.reason)
    if header.cancel_requested and not header.status.terminal:
        facts["cancel"] = "requested"
    for number, wait in enumerate(header.waiting, 1):
        facts["waiting" if number == 1 else f"waiting {number}"] = _wait(wait)
    if header.result is not None:
        facts["result"] = compact(json.loads(header.result))
    if header.error is not None:
        facts["error"] = one_line(str(header.error))
    if header.idempotency_key is not None:
        facts["key"] = one_line(header.idempotency_key)
    if header.tags:
        facts["tags"] = one_line(", ".join(header.tags))
    if header.attributes is not None:
        facts["attributes"] = compact(json.loads(header.attributes))
    if header.kept_until is not None:
        facts["kept until"] = shapes.iso(header.kept_until)
    if header.context is not None:
        facts["context"] = compact(json.loads(header.context))
    return facts | _kin(header)


def _kin(header: RunHeader) -> dict[str, str]:
    """The other runs that a run comes from or goes on as."""
    facts: dict[str, str] = {}
    if header.forked_from is not None:
        facts["forked"] = f"from event {header.forked_from.event} of {header.forked_from.run_id}"
    if header.parent is not None:
        facts["parent"] = one_line(f"{header.parent.run_id}, as {header.parent.child}")
    if header.continued_from is not None:
        facts["continues"] = header.continued_from
    if header.continued_to is not None:
        facts["continued"] = f"as {header.continued_to}"
    return facts


def _done(wait: Wait) -> str:
    return "some" if wait.done is None else str(wait.done)


def _wait(wait: Wait) -> str:
    until = "" if wait.until is None else f" until {shapes.iso(wait.until)}"
    done = "" if wait.total is None else f", {_done(wait)} of {wait.total} done"
    reason = "" if wait.reason is None else f": {wait.reason}"
    since = shapes.iso(wait.since)
    return one_line(f"{wait.kind} {wait.id} since {since}{until}{done}{reason}")


@app.command(cls=Command)
@on_target
def history(target: Target, *, run: RunId, as_json: AsJson = False) -> None:
    """Show what happened to a run, event by event."""
    out = Output(as_json=as_json)
    with target.open_existing() as opened:
        events = asyncio.run(opened.client.history(run))
    if as_json:
        out.json({"run_id": run, "events": [shapes.event_shape(event) for event in events]})
    else:
        out.table(COLUMNS, timeline(events))


@app.command(cls=Command)
@on_target
def chain(target: Target, *, run: RunId, as_json: AsJson = False) -> None:
    """Show the runs that go on for one another as new ones, of which this run is one."""
    out = Output(as_json=as_json)
    with target.open_existing() as opened:
        links = asyncio.run(opened.client.chain(run))
    if as_json:
        out.json({"run_id": run, "chain": [shapes.run_summary(link) for link in links]})
    else:
        out.table(_LIST_COLUMNS, [_row(link) for link in links])


@app.command(cls=Command)
@on_target
def output(
    target: Target,
    *,
    run: RunId,
    step: Annotated[str, typer.Argument(metavar="STEP", help="Id of the step, such as talk:1.")],
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on until the step or the run has ended.")
    ] = False,
    after: Annotated[
        int, typer.Option("--after", min=0, metavar="N", help="From behind this position.")
    ] = 0,
    as_json: AsJson = False,
) -> None:
    """Print what a streaming step has put out, a line for each chunk."""
    out = Output(as_json=as_json)
    with target.open_existing() as opened:
        shown = asyncio.run(_output(out, opened.client, run, step, after=after, follow=follow))
    if not shown and not as_json:
        talk(f"no output of step {step!r} of run {run}")


async def _output(
    out: Output, client: Client, run_id: str, step: str, *, after: int, follow: bool
) -> int:
    missing = await _missing(client, run_id, step)
    if missing is not None:
        if not follow or (await client.get(run_id)).status.terminal:
            raise NotFound(missing)
        talk(f"{missing}; waiting for it to begin")
    shown = 0
    async for chunk in client.output(run_id, step, after=after, follow=follow):
        _show_chunk(out, chunk)
        shown += 1
    return shown


async def _missing(client: Client, run_id: str, step: str) -> str | None:
    """What to say when a step is not there; None when it is."""
    state = fold(recorded.event for recorded in await client.history(run_id))
    if step in state.steps:
        return None
    # A first attempt is recorded when it ends, and has perhaps put something out before.
    async for _ in client.output(run_id, step, follow=False):
        return None
    return f"no step {step!r} in this run; steps so far: {several(state.steps) or 'none'}"


def _show_chunk(out: Output, chunk: OutputChunk) -> None:
    if out.as_json:
        out.json(shapes.chunk_shape(chunk))
    elif chunk.reset:
        talk(f"-- what came after chunk {chunk.number} is superseded")
    else:
        out.line(chunk.value if isinstance(chunk.value, str) else compact(chunk.value))
