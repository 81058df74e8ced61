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
from stepwell.cli.runs import show_facts
from stepwell.cli.stopping import Stop, stopping
from stepwell.cli.target import Db, File, Opened, Target, on_target
from stepwell.client import PendingHook
from stepwell.core.events import HookNotifyFailed
from stepwell.core.records import Millis, RunHeader, RunStatus
from stepwell.core.state import fold
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
        self._ports = opened.ports
        self._engine = opened.engine
        self._target = target
        self._out = out
        self._module = module
        self._looked_at = 0
        self._failures: tuple[HookNotifyFailed, ...] = ()

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
                hooks, interrupted = await self._follow(handle.id, patience, stop, serving)
                header = await handle.get()
                unnotified = () if header.status.terminal else await self._unnotified(header)
                seen = _Seen(header, hooks, unnotified, interrupted)
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
    ) -> tuple[tuple[PendingHook, ...], bool]:
        """Wait until the run ends or rests. Its open hooks, and whether we were interrupted."""
        pause, longest = (_LOOK, _LOOK) if self._engine else _LOOKS_FROM_AFAR
        while not serving.done() and not stop.event.is_set():
            hooks = await self._open_hooks(run_id)
            if await self._rests(run_id, hooks, patience):
                return hooks, False
            await asyncio.wait({serving}, timeout=pause)
            pause = min(pause * 1.5, longest)
        await serving
        return await self._open_hooks(run_id), True

    async def _rests(self, run_id: str, hooks: tuple[PendingHook, ...], patience: Millis) -> bool:
        """Whether the run ended, or does not go on by itself soon enough."""
        header = await self._ports.store.get_header(run_id)
        if header is None:
            return False
        if header.status.terminal or header.attention is not None:
            return True
        if not header.waiting or header.cancel_requested:
            return False
        expiries = {hook.hook_id: hook.expires_at for hook in hooks}
        end = self._ports.clock.now() + patience
        for wait in header.waiting:
            if wait.kind == "step":
                return False  # it is being worked on, as an inline one would be
            if wait.kind == "hook" and wait.id not in expiries:
                return False  # it is decided: the turn that takes the decision comes
            due = expiries[wait.id] if wait.kind == "hook" else wait.until
            if due is not None and due <= end:
                return False
        return all(failed.due > end for failed in await self._unnotified(header))

    async def _unnotified(self, header: RunHeader) -> tuple[HookNotifyFailed, ...]:
        """The last failure of each open hook that nobody could be told of so far."""
        if self._looked_at != header.last_event:
            rows = await self._ports.store.load(header.run_id)
            events = [event for commit in rows.commits for event in commit.events]
            hooks = fold(events).hooks
            failures = {each.hook: each for each in events if isinstance(each, HookNotifyFailed)}
            self._failures = tuple(
                each for each in failures.values() if hooks[each.hook].status == "notifying"
            )
            self._looked_at = header.last_event
        return self._failures

    async def _open_hooks(self, run_id: str) -> tuple[PendingHook, ...]:
        hooks: list[PendingHook] = []
        cursor: str | None = None
        while True:
            page = await self._client.list_hooks(run_id=run_id, limit=200, cursor=cursor)
            hooks += page.items
            cursor = page.cursor
            if cursor is None:
                return tuple(hooks)

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
