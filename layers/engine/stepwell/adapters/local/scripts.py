"""Scripts: blocking calls that run a workflow on the local engine, in this process.

A call works on its own run alone, and on those that it starts: another script on the same file has
guards that only its process knows.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any, TypeVar

from stepwell.adapters.local.database import Database
from stepwell.adapters.local.environment import DB_VARIABLE, DEFAULT_DB
from stepwell.adapters.local.runtime import LocalEngine
from stepwell.authoring.decorators import Workflow
from stepwell.authoring.guards import forget, guard_change
from stepwell.authoring.registry import registry
from stepwell.authoring.scripts import ProblemKind, Run, RunProblem, RunStanding, ScriptOptions
from stepwell.core.durations import to_millis
from stepwell.core.records import GuardChange, Guards, Millis, RunHeader, RunStatus
from stepwell.core.state import RunState, fold_commits
from stepwell.engine.chains import UnknownGuard, found
from stepwell.engine.headers import last_link
from stepwell.engine.progress import goes_on_elsewhere
from stepwell.errors import Failure, RunNotFound, UsageError

T = TypeVar("T")

_FILE = "stepwell.db"
#: How long a call rests before it looks again whether it can go on, in seconds.
_PAUSE = 0.02
#: Kinds of waits that somebody outside ends, or another run that is looked at by itself.
_OTHERS = ("hook", "input", "child")
_STANDINGS: dict[RunStatus, RunStanding] = {
    RunStatus.COMPLETED: "completed",
    RunStatus.FAILED: "failed",
    RunStatus.CANCELLED: "cancelled",
}
_KINDS: dict[str, ProblemKind] = {
    "stepwell.errors.StepBlocked": "hook",
    "stepwell.errors.StepTimeout": "timeout",
    "stepwell.errors.PayloadError": "serialize",
    "stepwell.errors.PayloadTooLarge": "serialize",
    "stepwell.errors.LimitExceeded": "limit",
}

_BORN_SINCE = """
SELECT run_id, json_extract(body, '$.parent.run_id'), json_extract(body, '$.continued_from')
FROM runs WHERE recency <= ? ORDER BY recency DESC
"""


def run(
    workflow: Workflow[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    options: ScriptOptions,
) -> Run[Any]:
    """See `Workflow.run`."""
    workflow.definition.arguments.encode(args, kwargs)  # before anything is made

    async def start() -> Run[Any]:
        with LocalEngine.open(_file(options)) as engine:
            script = _Script(engine, workflow, options)
            change = script.change()
            client = engine.client.with_guards(None if change is None else change.guards)
            handle = await client.start(workflow, *args, **kwargs)
            return await script.finish(handle.id)

    return _blocking(start())


def resume(workflow: Workflow[..., Any], run_id: str, options: ScriptOptions) -> Run[Any]:
    """See `Workflow.resume`."""
    path = _file(options)
    if not isinstance(run_id, str) or not path.exists():
        raise RunNotFound(run_id)

    async def go_on() -> Run[Any]:
        with LocalEngine.open(path) as engine:
            return await _Script(engine, workflow, options).resume(run_id)

    return _blocking(go_on())


def _file(options: ScriptOptions) -> Path:
    if options.journal_dir is not None:
        return Path(options.journal_dir) / _FILE
    return Path(os.environ.get(DB_VARIABLE) or DEFAULT_DB)


def _blocking(work: Coroutine[Any, Any, T]) -> T:
    """Run it to its end; in a thread of its own where this one runs a loop, as in a notebook."""
    if not _runs_a_loop():
        return asyncio.run(work)
    ended: list[T] = []
    raised: list[BaseException] = []

    def call() -> None:
        try:
            ended.append(asyncio.run(work))
        except BaseException as error:  # raised again where it was called
            raised.append(error)

    thread = threading.Thread(target=call, name="stepwell-script")
    thread.start()
    thread.join()
    if raised:
        raise raised[0]
    return ended[0]


def _runs_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class _Script:
    """One call, on one open file."""

    def __init__(
        self, engine: LocalEngine, workflow: Workflow[..., Any], options: ScriptOptions
    ) -> None:
        self._engine = engine
        self._store = engine.local.store
        self._workflow = workflow
        self._options = options
        self._wait = None if options.wait is None else to_millis(options.wait)

    def change(self) -> GuardChange | None:
        """What the call says of the run's guards; None where it says nothing."""
        options, nonce = self._options, self._engine.local.ports.ids.new_id()
        return guard_change(options.prepare_step, options.review_step, nonce)

    async def resume(self, run_id: str) -> Run[Any]:
        """Go on with a run."""
        header = await last_link(self._engine.local.ports, run_id)
        if header is None:
            raise RunNotFound(run_id)
        if header.workflow != self._workflow.definition.name:
            raise UsageError(
                f"run {run_id!r} is one of workflow {header.workflow!r}, not of "
                f"{self._workflow.definition.name!r}"
            )
        client = self._engine.client
        if header.status is RunStatus.COMPLETED:
            return await self._shown(header)
        change = self.change()
        if header.status.terminal:
            await client.begin_again(header.run_id, change)
        else:
            await client.go_on(header.run_id, change)
        if change is not None:
            await self._guard_children(header.run_id, change)
        return await self.finish(header.run_id)

    async def _guard_children(self, run_id: str, change: GuardChange) -> None:
        """Give these guards to what the run has started, where it has some that nobody knows here.

        A child keeps what its parent had when it started, which may be known to a process that is
        gone.
        """
        for each in _Family(self._engine.local.database, run_id).ids()[1:]:
            header = await self._store.get_header(each)
            if header is None or header.status.terminal or header.paused:
                continue
            state = await self._state_of(each)
            guards = state.guards if state.started is not None else header.guards
            if guards is not None and not _are_known(guards):
                await self._engine.client.go_on(each, change)

    async def finish(self, run_id: str) -> Run[Any]:
        """Work on a run until it ends, or nothing goes on without somebody's doing."""
        family = _Family(self._engine.local.database, run_id)
        self._engine.only = family.ids
        while True:
            await self._engine.serve(until_idle=True)
            if await self._rests(family):
                break
            await asyncio.sleep(_PAUSE)
        header = await last_link(self._engine.local.ports, run_id)
        if header is None:
            raise RunNotFound(run_id)
        return await self._shown(header)

    async def _rests(self, family: _Family) -> bool:
        if await self._engine.local.queue.depth_of(family.ids()):
            return False
        for run_id in family.ids():
            header = await self._store.get_header(run_id)
            if header is not None and not await self._is_still(header):
                return False
        return True

    async def _is_still(self, header: RunHeader) -> bool:
        """Whether nothing becomes of a run by itself, or not soon enough."""
        if header.status.terminal or header.attention is not None:
            return True
        # What items of a map wait for stands beside it, but for those that are made elsewhere.
        waits = [wait for wait in header.waiting if wait.kind != "map"]
        if not waits or header.cancel_requested:
            return False
        if not all(wait.kind in _OTHERS or self._is_far(wait.until) for wait in waits):
            return False
        if not any(wait.away for wait in header.waiting):
            return True
        state = await self._state_of(header.run_id)
        return not await goes_on_elsewhere(self._engine.local.ports.maps, header.run_id, state)

    def _is_far(self, until: Millis | None) -> bool:
        if self._wait is None or until is None:
            return False
        return until > self._engine.local.ports.clock.now() + self._wait

    async def _shown(self, header: RunHeader) -> Run[Any]:
        status = _STANDINGS.get(header.status, "suspended")
        if header.status is RunStatus.COMPLETED:
            shown = await self._engine.client.get(header.run_id)
            assert shown.result is not None
            result = self._workflow.definition.result.decode(shown.result)
            await self._let_go(header)
            return Run(header.run_id, status, result)
        if header.status is RunStatus.FAILED:
            assert header.error is not None
            return Run(header.run_id, status, error=_problem(header.error))
        if header.status is RunStatus.CANCELLED:
            history = await self._engine.client.history(header.run_id)
            reason = getattr(history[-1].event, "reason", None) or "cancelled"
            return Run(header.run_id, status, error=RunProblem("cancelled", reason))
        return Run(header.run_id, status, error=await self._why(header))

    async def _let_go(self, header: RunHeader) -> None:
        forget((await self._state_of(header.run_id)).guards)

    async def _state_of(self, run_id: str) -> RunState:
        rows = await self._store.load(run_id)
        return fold_commits(rows.commits)

    async def _why(self, header: RunHeader) -> RunProblem:
        """What a run that has not ended waits for."""
        note = header.attention
        if note is not None:
            state = await self._state_of(header.run_id)
            unknown = state.guards is not None and not _are_known(state.guards)
            kind: ProblemKind = "blocked" if note.kind == "BLOCKED" else "stuck"
            if note.kind == "PAUSED":
                kind = "paused"
            return RunProblem("hook" if unknown else kind, note.reason)
        reasons = [wait.reason or f"{wait.kind} {wait.id}" for wait in header.waiting]
        return RunProblem("suspended", "; ".join(reasons))


def _are_known(guards: Guards) -> bool:
    try:
        found(guards, registry.guard)
    except UnknownGuard:
        return False
    return True


def _problem(failure: Failure) -> RunProblem:
    """The first failure from the outside in that says what kind it is."""
    each: Failure | None = failure
    while each is not None:
        kind = _KINDS.get(each.type)
        if kind == "hook" and each.cause is not None and each.cause.type == each.type:
            each = each.cause  # the guard's own words
        if kind is not None:
            return RunProblem(kind, each.message)
        each = each.cause
    return RunProblem("step", failure.message or failure.type)


class _Family:
    """A run with all that it started or goes on as: the runs that a call works on."""

    def __init__(self, database: Database, run_id: str) -> None:
        self._database = database
        [(recency,)] = database.query("SELECT recency FROM runs WHERE run_id = ?", run_id)
        self._recency = recency
        self._ids = [run_id]

    def ids(self) -> list[str]:
        """Their ids; it grows as they start others."""
        known = set(self._ids)
        for run_id, parent, before in self._database.query(_BORN_SINCE, self._recency):
            if run_id not in known and (parent in known or before in known):
                known.add(run_id)
                self._ids.append(run_id)
        return self._ids
