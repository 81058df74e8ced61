"""`stepwell runs`: what is asked of a run that is there, and going on from a copy."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Annotated, Any

import typer

from stepwell.cli.failing import BadInput
from stepwell.cli.load import read_json
from stepwell.cli.options import AsJson, RunId, duration
from stepwell.cli.render import Output
from stepwell.cli.target import Target, on_target, suggest_worker
from stepwell.client import Client, RunHandle
from stepwell.core.records import Millis, RunHeader, RunStatus

Reason = Annotated[
    str | None, typer.Option("--reason", help="Why, for the record.", show_default=False)
]
Actor = Annotated[
    str | None, typer.Option("--actor", help="Who asks, for the record.", show_default=False)
]


@on_target
def cancel(
    target: Target,
    *,
    run: RunId,
    reason: Reason = None,
    actor: Actor = None,
    wait: Annotated[
        str | None,
        typer.Option(
            "--wait", metavar="DURATION", help="Wait so long for its end.", show_default=False
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="End it without its code having a say.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Ask for a run to be cancelled. Its workflow is told where it waits, and may clean up."""
    out = Output(as_json=as_json)
    most = None if wait is None else duration(wait, "--wait")
    with target.open_existing() as opened:
        found, status = asyncio.run(
            _cancel(opened.client, run, reason, actor, wait=most, force=force)
        )
    requested = not _is_over(found)
    if as_json:
        out.json({"run_id": run, "requested": requested, "status": status.value})
    elif not requested:
        out.line(f"run {run} has already ended: {found.status}")
    elif most is None:
        out.line(f"run {run}: cancel requested")
        suggest_worker(target, "a worker carries it out")
    else:
        out.line(f"run {run} has ended: {status}")


async def _cancel(
    client: Client,
    run_id: str,
    reason: str | None,
    actor: str | None,
    *,
    wait: Millis | None,
    force: bool,
) -> tuple[RunHeader, RunStatus]:
    """The run as it was found, and its status afterwards."""
    header = await client.get(run_id)
    if _is_over(header):
        return header, header.status
    status = await client.cancel(
        run_id,
        reason,
        actor=actor,
        wait=False if wait is None else wait / 1000,
        force=force,
    )
    return header, status


def _is_over(header: RunHeader) -> bool:
    return header.status.terminal and header.continued_to is None


@on_target
def pause(
    target: Target,
    *,
    run: RunId,
    reason: Reason = None,
    actor: Actor = None,
    as_json: AsJson = False,
) -> None:
    """Let a run begin nothing more until it is resumed. What is under way ends first."""
    _ask(target, lambda client: client.pause(run, reason, actor=actor))
    goes_on = f"it goes on with: stepwell runs resume {run}{target.flag}"
    _tell(target, run, "paused", f"paused; {goes_on}", as_json=as_json)


@on_target
def resume(target: Target, *, run: RunId, as_json: AsJson = False) -> None:
    """Let a run go on that is paused, or have one look again that waits for input."""
    _ask(target, lambda client: client.resume(run))
    _tell(target, run, "resumed", "resumed", "carries it on", as_json=as_json)


@on_target
def retry(target: Target, *, run: RunId, actor: Actor = None, as_json: AsJson = False) -> None:
    """Let a run that failed or was cancelled go on; what had succeeded is not done again."""
    _ask(target, lambda client: client.retry(run, actor=actor))
    _tell(target, run, "retried", "goes on", "carries it on", as_json=as_json)


@on_target
def wake(target: Target, *, run: RunId, as_json: AsJson = False) -> None:
    """Have a run looked at again: a blocked one with code that fits, a stuck one once mended."""
    _ask(target, lambda client: client.wake(run))
    _tell(target, run, "woken", "woken", "looks at it", as_json=as_json)


@on_target
def delete(target: Target, *, run: RunId, as_json: AsJson = False) -> None:
    """Delete a run that has ended, with all that it holds. This cannot be undone."""
    _ask(target, lambda client: client.delete(run))
    _tell(target, run, "deleted", "will be deleted", "does it", as_json=as_json)


def _ask(target: Target, call: Callable[[Client], Coroutine[Any, Any, None]]) -> None:
    with target.open_existing() as opened:
        asyncio.run(call(opened.client))


def _tell(
    target: Target, run: str, done: str, said: str, work: str | None = None, *, as_json: bool
) -> None:
    """Say that something was asked of a run, and what a worker does then."""
    out = Output(as_json=as_json)
    if as_json:
        out.json({"run_id": run, done: True})
        return
    out.line(f"run {run}: {said}")
    if work is not None:
        suggest_worker(target, f"a worker {work}")


@on_target
def fork(
    target: Target,
    *,
    run: RunId,
    at: Annotated[
        int | None,
        typer.Option(
            "--at", min=1, metavar="N", help="Up to this event; else all.", show_default=False
        ),
    ] = None,
    given: Annotated[
        str | None,
        typer.Option(
            "--input",
            metavar="JSON",
            help="Other arguments, as an object; or @FILE, or - for stdin.",
            show_default=False,
        ),
    ] = None,
    edit: Annotated[
        list[str] | None,
        typer.Option(
            "--edit",
            metavar="N=JSON",
            help="Another value for event N: a step's result, or an answer. May be repeated.",
            show_default=False,
        ),
    ] = None,
    fork_id: Annotated[
        str | None, typer.Option("--id", help="Id of the new run.", show_default=False)
    ] = None,
    key: Annotated[
        str | None,
        typer.Option("--key", help="Idempotency key: one fork for each.", show_default=False),
    ] = None,
    actor: Actor = None,
    as_json: AsJson = False,
) -> None:
    """Begin a new run with what this one has come to. This one is left as it is."""
    out = Output(as_json=as_json)
    other = None if given is None else read_json(given, "--input").value
    if other is not None and not isinstance(other, dict):
        raise BadInput("--input: give an object with the arguments by name")
    spec: dict[str, Any] = {
        "at": at,
        "input": other,
        "edits": _edits(edit or ()),
        "fork_id": fork_id,
        "idempotency_key": key,
        "actor": actor,
    }
    with target.open_existing() as opened:
        handle, header = asyncio.run(_fork(opened.client, run, spec))
    origin = header.forked_from
    assert origin is not None
    if as_json:
        lineage = {"run_id": origin.run_id, "event": origin.event}
        out.json({"run_id": handle.id, "forked_from": lineage, "repeated": handle.repeated})
    else:
        out.line(f"run {handle.id}: forked from event {origin.event} of {origin.run_id}")
        suggest_worker(target, "a worker begins it")


async def _fork(
    client: Client, run_id: str, spec: dict[str, Any]
) -> tuple[RunHandle[Any], RunHeader]:
    handle = await client.fork(run_id, **spec)
    return handle, await handle.get()


def _edits(given: Sequence[str]) -> dict[int, Any]:
    edits: dict[int, Any] = {}
    for each in given:
        number, equals, text = each.partition("=")
        if not equals or not number.isdecimal():
            raise BadInput(f"--edit: write the event's number, '=' and JSON, not {each!r}")
        edits[int(number)] = read_json(text, "--edit").value
    return edits
