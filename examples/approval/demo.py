"""The approval, through a process kill: `make demo`.

A first process works the refund until it waits for its reviewer, and is killed. A second one brings
the answer and carries the run to its end. Exits with 0 only if everything came out as promised.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from examples.approval.process import ORDER
from examples.approval.workflow import refund
from examples.outside import Outside, connect
from stepwell.adapters.local.runtime import LocalEngine
from stepwell.client import Recorded
from stepwell.core import events as e
from stepwell.core.ids import run_id_for
from stepwell.core.records import RunHeader, RunStatus

_PATIENCE = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What there was to see in the end."""

    first: int
    second: int
    first_exit: int
    second_exit: int
    killed_at: int
    run: RunHeader
    history: tuple[Recorded, ...]


def main() -> int:
    """Run the demo. 0 if everything came out as promised."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--folder", type=Path, help="keep the files here (default: nowhere)")
    chosen: Path | None = parser.parse_args().folder
    with tempfile.TemporaryDirectory(prefix="stepwell-demo-") as temporary:
        folder = chosen or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            print(f"{folder} is not empty: choose another folder", file=sys.stderr)
            return 2
        world = connect(folder / "outside.sqlite3")
        try:
            outcome = asyncio.run(_play(folder))
            _print_timeline(outcome)
            return _judge(outcome, world)
        finally:
            world.close()


async def _play(folder: Path) -> Outcome:
    _say(f"A refund of {ORDER.amount} for order {ORDER.number}, and a process that is killed.\n")
    with LocalEngine.open(folder / "stepwell.sqlite3") as engine:
        run_id = run_id_for(refund.definition.name, ORDER.number)
        first = _spawn("begin", folder)
        try:
            _say(f"  process {first.pid}  starts the refund, drafts it and asks the reviewer")
            await _until_waiting(engine, run_id, first)
        finally:
            first.kill()
            first_exit = first.wait()
        killed_at = engine.local.ports.clock.now()
        _say(f"  process {first.pid}  is killed with {_ending(first_exit)} while the run waits")
        second = _spawn("finish", folder)
        _say(f"  process {second.pid}  brings the reviewer's answer and carries the run to its end")
        try:
            second_exit = second.wait(timeout=_PATIENCE)
        finally:
            second.kill()
        return Outcome(
            first=first.pid,
            second=second.pid,
            first_exit=first_exit,
            second_exit=second_exit,
            killed_at=killed_at,
            run=await engine.client.get(run_id),
            history=await engine.client.history(run_id),
        )


def _spawn(role: str, folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "examples.approval.process", role, str(folder)]
    root = Path(__file__).parents[2]
    return subprocess.Popen(command, cwd=root)


async def _until_waiting(
    engine: LocalEngine, run_id: str, process: subprocess.Popen[bytes]
) -> None:
    """Return when the run waits for a hook and its last message is acknowledged."""
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        run = await engine.local.ports.store.get_header(run_id)
        if run is not None and run.waiting and not await engine.local.queue.depth():
            return
        if process.poll() is not None:
            raise SystemExit(f"the first process ended by itself, with {process.returncode}")
        await asyncio.sleep(0.01)
    raise SystemExit("the run did not come to wait for its reviewer")


def _print_timeline(outcome: Outcome) -> None:
    _say(f"\nThe history of run {outcome.run.run_id}\n")
    shown = [*_rows(outcome)]
    widths = [max(len(row[column]) for row in shown) for column in range(3)]
    for row in shown:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=False))
        _say(f"  {'  '.join(cells)}  {row[3]}".rstrip())


def _rows(outcome: Outcome) -> Iterator[tuple[str, str, str, str]]:
    yield "", "time", "event", "what"
    killed = False
    for recorded in outcome.history:
        event = recorded.event
        if not killed and event.at > outcome.killed_at:
            killed = True
            yield "", _clock(outcome.killed_at), "", f"--- {outcome.first} killed ---"
        yield str(recorded.number).rjust(2), _clock(event.at), event.type, _what(event)


def _what(event: e.Event) -> str:
    match event:
        case e.RunStarted():
            return f"{event.workflow}, order {ORDER.number}"
        case e.StepSuspended():
            return f"{event.step} waits; its draft is in its checkpoint"
        case e.StepCompleted():
            return f"{event.step} has its result"
        case e.HookOpened():
            return f"{event.hook} asked, deadline {_day(event.expires_at)}"
        case e.HookReceived():
            answer = json.loads(event.payload)
            verdict = "approved" if answer["approved"] else "declined"
            return f"{event.hook}: {verdict} by {answer['reviewer']}"
        case e.RunCompleted():
            return str(json.loads(event.result)["status"])
        case _:
            return ""


def _clock(at: int) -> str:
    return f"{datetime.fromtimestamp(at / 1000).astimezone():%H:%M:%S}.{at % 1000:03d}"


def _day(at: int | None) -> str:
    return "none" if at is None else f"{datetime.fromtimestamp(at / 1000).astimezone():%d %b %H:%M}"


def _ending(code: int) -> str:
    return f"{signal.Signals(-code).name} (signal {-code})" if code < 0 else f"exit status {code}"


def _say(line: str) -> None:
    print(line, flush=True)


def _judge(outcome: Outcome, world: Outside) -> int:
    """Say what was proved, or what was not. The exit status."""
    result = json.loads(outcome.run.result or "null")
    promises = {
        "the first process was killed": outcome.first_exit == -signal.SIGKILL,
        "the second process did its work": outcome.second_exit == 0,
        "the run completed": outcome.run.status is RunStatus.COMPLETED,
        "the refund is paid": result is not None and result["status"] == "paid",
        "the draft was written once": world.requests("draft") == 1,
        "the reviewer was asked once": world.requests("review asked") == 1,
        "the bank was asked once": world.requests("payment") == 1,
        "the money was paid once": len(world.effects("payment")) == 1,
        "the customer was told once": len(world.effects("confirmation")) == 1,
        "events were written before and after the kill": _straddles(outcome),
    }
    broken = [promise for promise, kept in promises.items() if not kept]
    for promise in broken:
        _say(f"\nNOT TRUE: {promise}")
    if broken:
        return 1
    _say(
        f"\nProved: set-up ran once, {ORDER.amount} was paid once, "
        f"by process {outcome.first} (killed) and process {outcome.second} (exit 0)."
    )
    return 0


def _straddles(outcome: Outcome) -> bool:
    times = [recorded.event.at for recorded in outcome.history]
    return bool(times) and times[0] <= outcome.killed_at < times[-1]


if __name__ == "__main__":
    sys.exit(main())
