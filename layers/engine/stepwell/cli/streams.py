"""`stepwell streams`: signals and who takes them."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer

from stepwell.cli.failing import BadInput
from stepwell.cli.load import read_json
from stepwell.cli.options import AsJson, Command, Group, duration
from stepwell.cli.render import Output, compact, one_line, short, talk
from stepwell.cli.target import Target, on_target, suggest_worker
from stepwell.engine.streaming import SubscriptionStanding
from stepwell.shapes import iso, iso_of, parked_shape, signal_shape, stream_shape
from stepwell.streams.signals import Signal

app = typer.Typer(cls=Group, no_args_is_help=True, help="Signals, and the steps that take them.")

Stream = Annotated[str, typer.Argument(metavar="STREAM", help="Name of the stream.")]
Step = Annotated[str, typer.Argument(metavar="STEP", help="Name of a step of the stream.")]
Number = Annotated[int, typer.Argument(metavar="NUMBER", min=0, help="Number of the signal.")]
StreamRun = Annotated[
    str | None,
    typer.Option(
        "--run", metavar="NAME", help='Name of the stream run, else "default".', show_default=False
    ),
]
Actor = Annotated[
    str | None, typer.Option("--actor", help="Who asks, for the record.", show_default=False)
]

_SIGNALS = ("number", "type", "published", "from run", "payload")
_STEPS = ("step", "status", "cursor", "lag", "ignored", "handled", "parked", "reason")
_PARKED = ("number", "type", "parked", "attempts", "error")


@app.command(cls=Command)
@on_target
def emit(
    target: Target,
    *,
    stream: Stream,
    signal_type: Annotated[str, typer.Argument(metavar="TYPE", help="Type of the signal.")],
    payload: Annotated[str, typer.Argument(metavar="JSON|-|@FILE", help="What it carries.")] = "{}",
    run: StreamRun = None,
    key: Annotated[
        str | None,
        typer.Option("--key", help="The same key is the same signal.", show_default=False),
    ] = None,
    metadata: Annotated[
        str, typer.Option("--metadata", metavar="JSON|-|@FILE", help="What goes along with it.")
    ] = "null",
    after: Annotated[
        str | None,
        typer.Option("--in", metavar="DURATION", help="Send it later.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Send a signal to a stream run; one that nobody has started keeps it."""
    out = Output(as_json=as_json)
    value = read_json(payload, "payload").value
    extra = _metadata(metadata)
    with target.open() as opened:
        client = opened.client
        if after is None:
            sending = client.emit(
                stream,
                signal_type,
                value,
                stream_run_id=run,
                metadata=extra,
                idempotency_key=key,
            )
        else:
            sending = client.schedule_signal(
                stream,
                signal_type,
                value,
                when=duration(after, "--in") / 1000,
                stream_run_id=run,
                metadata=extra,
                idempotency_key=key,
            )
        signal = asyncio.run(sending)
    if as_json:
        out.json(signal_shape(signal))
        return
    how = "is sent" if after is None else f"will be sent in {after}"
    where = f"{stream}, run {one_line(signal.stream_run_id or '')}"
    out.line(f"signal {signal.signal_id} {how} to stream {where}")
    suggest_worker(target, "a worker delivers it")


def _metadata(given: str) -> dict[str, Any] | None:
    value = read_json(given, "--metadata").value
    if value is None or isinstance(value, dict):
        return value
    raise BadInput("""--metadata takes an object, such as '{"by": "desk"}'""")


@app.command(cls=Command)
@on_target
def unschedule(
    target: Target,
    *,
    stream: Stream,
    signal_id: Annotated[str, typer.Argument(metavar="SIGNAL", help="Id of the signal.")],
    run: StreamRun = None,
    as_json: AsJson = False,
) -> None:
    """Take back a signal that is to be sent later."""
    with target.open_existing() as opened:
        asyncio.run(opened.client.cancel_signal(stream, signal_id, stream_run_id=run))
    out = Output(as_json=as_json)
    if as_json:
        out.json({"signal_id": signal_id, "requested": True})
    else:
        out.line(f"signal {one_line(signal_id)} is taken back, unless it was on its way")


@app.command(cls=Command)
@on_target
def signals(
    target: Target,
    *,
    stream: Stream,
    run: StreamRun = None,
    after: Annotated[int, typer.Option("--after", min=0, help="Those above this number.")] = 0,
    before: Annotated[
        int | None,
        typer.Option("--before", min=1, help="Those below this number.", show_default=False),
    ] = None,
    types: Annotated[
        list[str] | None, typer.Option("--type", help="Of this type only; may be repeated.")
    ] = None,
    source: Annotated[
        str | None,
        typer.Option("--source", metavar="RUN", help="Emitted by this run.", show_default=False),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1_000, help="So many at most.")] = 50,
    as_json: AsJson = False,
) -> None:
    """List the signals of a stream run in their order; as JSON, one a line."""
    out = Output(as_json=as_json)
    with target.open_existing() as opened:
        reading = opened.client.signals(
            stream,
            stream_run_id=run,
            after=after,
            before=before,
            types=types or None,
            source_run_id=source,
            limit=limit,
        )
        found = asyncio.run(reading)
    if as_json:
        for each in found:
            out.json(signal_shape(each))
    elif found:
        out.table(_SIGNALS, [_signal(each) for each in found])
        if len(found) == limit:
            talk(f"there may be more: --after {found[-1].sequence}")
    else:
        talk("no such signals")


@app.command(cls=Command)
@on_target
def show(target: Target, *, stream: Stream, run: StreamRun = None, as_json: AsJson = False) -> None:
    """Show a stream run: how far it has come, and its steps."""
    out = Output(as_json=as_json)
    with target.open_existing() as opened:
        found = asyncio.run(opened.client.stream(stream, stream_run_id=run))
    if as_json:
        out.json(stream_shape(found))
        return
    facts = {
        "stream": f"{found.stream}, run {one_line(found.stream_run)}",
        "run": found.run_id,
        "status": found.status or "not started: its signals wait",
        "signals": str(found.last),
    }
    if found.last_signal_at is not None:
        facts["last signal"] = iso(found.last_signal_at)
    if found.reason is not None:
        facts["waits for"] = one_line(found.reason)
    out.facts(facts)
    if found.subscriptions:
        out.table(_STEPS, [_subscription(each) for each in found.subscriptions])
    else:
        talk("nobody has subscribed")


@app.command(cls=Command)
@on_target
def parked(
    target: Target, *, stream: Stream, step: Step, run: StreamRun = None, as_json: AsJson = False
) -> None:
    """List the signals that a step could not handle."""
    out = Output(as_json=as_json)
    with target.open_existing() as opened:
        found = asyncio.run(opened.client.parked_signals(stream, step, stream_run_id=run))
    if as_json:
        out.json({"signals": [parked_shape(each) for each in found]})
    elif found:
        rows = [
            (
                str(each.sequence),
                each.signal_type or "(start)",
                iso(each.at),
                str(each.attempts),
                short(str(each.error)) + (" (later ones wait)" if each.blocks else ""),
            )
            for each in found
        ]
        out.table(_PARKED, rows)
    else:
        talk("no signals are parked")


@app.command(cls=Command)
@on_target
def redrive(
    target: Target,
    *,
    stream: Stream,
    step: Step,
    number: Number,
    run: StreamRun = None,
    actor: Actor = None,
    as_json: AsJson = False,
) -> None:
    """Have a parked signal handled again, from its beginning."""
    with target.open_existing() as opened:
        redriving = opened.client.redrive_signal(
            stream, step, number, stream_run_id=run, actor=actor
        )
        asyncio.run(redriving)
    _mended(target, "redrive", number, as_json=as_json)


@app.command(cls=Command)
@on_target
def discard(
    target: Target,
    *,
    stream: Stream,
    step: Step,
    number: Number,
    run: StreamRun = None,
    actor: Actor = None,
    as_json: AsJson = False,
) -> None:
    """Give a parked signal up."""
    with target.open_existing() as opened:
        discarding = opened.client.discard_signal(
            stream, step, number, stream_run_id=run, actor=actor
        )
        asyncio.run(discarding)
    _mended(target, "discard", number, as_json=as_json)


def _mended(target: Target, action: str, number: int, *, as_json: bool) -> None:
    out = Output(as_json=as_json)
    if as_json:
        out.json({"sequence": number, "action": action, "requested": True})
        return
    done = "will be handled again" if action == "redrive" else "is given up"
    out.line(f"signal {number} {done}")
    suggest_worker(target, "a worker sees to it")


def _signal(signal: Signal) -> tuple[str, ...]:
    return (
        str(signal.sequence),
        signal.signal_type,
        iso_of(signal.published_at),
        one_line(signal.source_run_id or ""),
        short(compact(signal.payload)),
    )


def _subscription(each: SubscriptionStanding) -> tuple[str, ...]:
    return (
        each.step,
        each.status if each.attention is None else f"{each.status} ({each.attention})",
        str(each.cursor),
        str(each.lag),
        str(each.ignored),
        str(each.handled),
        str(each.parked),
        one_line(each.reason or ""),
    )
