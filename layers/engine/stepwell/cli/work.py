"""`stepwell run` and `stepwell worker`: the commands that carry runs on.

What workflow code prints goes to stderr: stdout is for the command's own data.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from contextlib import redirect_stdout
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from stepwell.adapters.local.runtime import LEASE, LocalEngine
from stepwell.authoring.decorators import Workflow
from stepwell.authoring.registry import registry
from stepwell.cli.answers import answer_command
from stepwell.cli.failing import BadInput, ExitCode
from stepwell.cli.load import Call, call_of, load_for_worker, load_workflow, read_json
from stepwell.cli.options import AsJson, duration
from stepwell.cli.render import Output, count, one_line, several, short, talk
from stepwell.cli.resting import Standing, Watcher
from stepwell.cli.runs import show_facts
from stepwell.cli.stopping import Stop, stopping
from stepwell.cli.target import Db, File, Opened, Target, on_target
from stepwell.client import PendingHook
from stepwell.core.events import HookNotifyFailed
from stepwell.core.records import Millis, RunHeader, RunStatus
from stepwell.shapes import hook_shape, iso, run_shape

#: How often `run` looks at its run, in seconds: at one in a file; and at one of a deployment, where
#: it looks less and less often, from the first pause to the second.
_LOOK = 0.02
_LOOKS_FROM_AFAR = (0.2, 2.0)
#: After how long `run` says why it is still there, in seconds.
_PATIENCE = 1.0


@dataclass(frozen=True, slots=True)
class _Seen:
    """A run as `run` saw it last: the hooks that it has open, those that nobody was told of."""

    header: RunHeader
    hooks: tuple[PendingHook, ...]
    unnotified: tuple[HookNotifyFailed, ...]
    interrupted: bool

    @property
    def exit_code(self) -> ExitCode:
        status = self.header.status
        if status is RunStatus.COMPLETED:
            return ExitCode.OK
        if status.terminal:
            return ExitCode.RUN_FAILED
        if self.header.attention is not None:
            return ExitCode.FAILURE
        return ExitCode.INTERRUPTED if self.interrupted else ExitCode.TIMED_OUT


@on_target
def run(
    target: Target,
    *,
    named: Annotated[
        str, typer.Argument(metavar="MODULE:WORKFLOW", help="What to run, such as app:refund.")
    ],
    given: Annotated[
        str,
        typer.Option(
            "--input",
            metavar="JSON|-|@FILE",
            help="An object of arguments by name, or an array of positional ones.",
        ),
    ] = "{}",
    idempotency_key: Annotated[
        str | None,
        typer.Option(
            "--idempotency-key", help="The same key gives the same run.", show_default=False
        ),
    ] = None,
    wait: Annotated[
        str,
        typer.Option("--wait", metavar="DURATION", help="Timers due within this are waited for."),
    ] = "10s",
    as_json: AsJson = False,
) -> None:
    """Start a run and work on it until it ends, or waits for an answer or a far timer.

    With --stack the deployment works on it.
    """
    out = Output(as_json=as_json)
    patience = duration(wait, "--wait")
    argument = read_json(given, "--input")
    with redirect_stdout(sys.stderr):
        workflow = load_workflow(named)
        call = call_of(workflow, argument)
        _log_to_stderr(logging.WARNING)
        with target.open() as opened:
            work = _Work(opened, target, out, named.partition(":")[0])
            code = asyncio.run(work.run(workflow, call, idempotency_key, patience))
    raise typer.Exit(code)


class _Work:
    """The work of one `run`. It changes the target, and remembers what it last saw of the run."""

    def __init__(self, opened: Opened, target: Target, out: Output, module: str) -> None:
        self._client = opened.client
        self._engine = opened.engine
        self._watcher = Watcher(opened.client, opened.ports)
        self._target = target
        self._out = out
        self._module = module

    async def run(
        self, workflow: Workflow[Any, Any], call: Call, key: str | None, patience: Millis
    ) -> ExitCode:
        args, kwargs = call
        client = self._client.with_options(idempotency_key=key)
        handle = await client.start(workflow, *args, **kwargs)
        with stopping(self._say_that_it_stops) as stop:
            talk(f"run {handle.id} of workflow {workflow.definition.name}")
            serving = asyncio.create_task(self._serve(stop))
            try:
                standing, interrupted = await self._follow(handle.id, patience, stop, serving)
                last = handle.id if standing.header is None else standing.header.run_id
                header = await self._client.get(last)
                seen = _Seen(header, standing.hooks, standing.unnotified, interrupted)
                self._show(seen)
            finally:
                stop.event.set()
                await self._finish(serving)
        return seen.exit_code

    def _say_that_it_stops(self) -> None:
        if self._engine is None:
            talk("no longer waiting; the run goes on")
        else:
            talk("stopping when the turns in flight are done")

    async def _serve(self, stop: Stop) -> None:
        """Carry runs on until we stop, if that is for us to do."""
        if self._engine is None:
            await stop.event.wait()
        else:
            await self._engine.serve(until=stop.event)

    @staticmethod
    async def _finish(serving: asyncio.Task[None]) -> None:
        await asyncio.wait({serving}, timeout=_PATIENCE)
        if not serving.done():
            talk("finishing the turns of other runs that are in flight")
        await serving

    async def _follow(
        self, run_id: str, patience: Millis, stop: Stop, serving: asyncio.Task[None]
    ) -> tuple[Standing, bool]:
        """Wait until the run ends or rests. How it stands, and whether we were interrupted."""
        pause, longest = (_LOOK, _LOOK) if self._engine else _LOOKS_FROM_AFAR
        while not serving.done() and not stop.event.is_set():
            standing = await self._watcher.look(run_id, patience)
            if standing.rests:
                return standing, False
            await asyncio.wait({serving}, timeout=pause)
            pause = min(pause * 1.5, longest)
        await serving
        return await self._watcher.look(run_id, patience), True

    def _show(self, seen: _Seen) -> None:
        header, hooks = seen.header, seen.hooks
        if self._out.as_json:
            shown = [hook_shape(hook) for hook in hooks]
            self._out.json({**run_shape(header), "hooks": shown})
        else:
            show_facts(self._out, header)
        if header.status.terminal:
            return
        for failed in seen.unnotified:
            talk(
                f"\nnobody was told of hook {one_line(failed.hook)}: "
                f"{short(str(failed.error), 200)}"
                f"\nit is tried again at {iso(failed.due)}"
            )
        for hook in hooks:
            talk(f"\nanswer hook {one_line(hook.hook_id)} with:")
            talk(f"  {answer_command(hook, self._target)}")
        blocked = header.attention is not None
        if self._target.is_local:
            when = "with code that fits" if blocked else "after an answer or when its timer is due"
            talk(f"\n{when}, it goes on by:")
            talk(f"  stepwell worker {self._module}{self._target.flag}")
        elif blocked:
            talk("\nonce code that fits is deployed, wake it with:")
            talk(f"  stepwell publish {self._module}{self._target.flag}")


def worker(
    *,
    modules: Annotated[
        list[str],
        typer.Argument(metavar="MODULE...", help="Modules whose workflows this worker runs."),
    ],
    until_idle: Annotated[
        bool, typer.Option("--until-idle", help="Stop when nothing is left to do now.")
    ] = False,
    concurrency: Annotated[
        int, typer.Option("--concurrency", min=1, help="How many runs at a time.")
    ] = 8,
    lease: Annotated[str, typer.Option("--lease", hidden=True)] = f"{LEASE}ms",
    db: Db = None,
    stack: Annotated[str | None, typer.Option("--stack", hidden=True)] = None,
    as_json: AsJson = False,
) -> None:
    """Take turns and fire timers until it is stopped. Turns in flight are finished."""
    if stack is not None:
        raise BadInput(
            "a worker here works on a local file: --stack has workers of its own on AWS, "
            "and `stepwell run --stack` starts runs there"
        )
    out = Output(as_json=as_json)
    file = File.of(db)
    held = duration(lease, "--lease")
    if held < 1:
        raise BadInput("--lease: it must be longer than nothing")
    with redirect_stdout(sys.stderr):
        for module in modules:
            load_for_worker(module)
        names = sorted(registry.workflows())
        if not names:
            raise BadInput(f"no workflow is defined in {', '.join(modules)}")
        _log_to_stderr(logging.INFO)
        with file.engine(held) as engine:
            stop = asyncio.run(_serve(engine, names, file, concurrency, until_idle=until_idle))
    if as_json:
        out.json({"workflows": names, "turns": engine.turns})
    else:
        talk(f"stopped after {count(engine.turns, 'turn')}")
    if stop.signal is signal.SIGINT:
        raise typer.Exit(ExitCode.INTERRUPTED)


async def _serve(
    engine: LocalEngine, names: list[str], file: File, concurrency: int, *, until_idle: bool
) -> Stop:
    with stopping(lambda: talk("stopping when the turns in flight are done")) as stop:
        woken = (await engine.publish()).woken
        if woken:
            talk(f"trying {count(woken, 'blocked run')} again")
        talk(f"working on {several(names)} in {file.path}")
        await engine.serve(concurrency=concurrency, until=stop.event, until_idle=until_idle)
    return stop


def _log_to_stderr(level: int) -> None:
    # After the import of the user's modules: their own configuration of logging stands.
    logging.basicConfig(stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    ours = logging.getLogger("stepwell.local")
    if ours.level == logging.NOTSET:
        ours.setLevel(level)
