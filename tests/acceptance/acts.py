"""What can be done in a scenario: by callers, by whoever runs the deployment, and to its time.

An act of a caller is put before the simulation, which lets it come at any moment at which what it
needs is there. The others happen at once, when all that came before has come to its end.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

from examples.outside import outside
from stepwell.authoring.decorators import Workflow
from stepwell.authoring.registry import registry
from stepwell.client import Client
from stepwell.client.streams import MendAction
from stepwell.core.durations import to_millis
from stepwell.core.records import HookRow
from stepwell.testing.simulation import Simulation
from stepwell.testing.simulation.actions import pass_until, passing
from stepwell.testing.simulation.cluster import Request
from stepwell.testing.simulation.work import begin_sweep
from tests.acceptance.deployments import DEPLOYMENTS, UNKNOWN
from tests.acceptance.faulting import Script
from tests.acceptance.scenario import Act, Scenario, Unreadable

Rows = dict[str, list[tuple[Any, ...]]]


@dataclass(slots=True)
class Stage:
    """What the acts of one play work on. `begun` are the requests of those who start runs."""

    scenario: Scenario
    sim: Simulation
    script: Script
    layers: ExitStack
    #: Lets all happen that needs no time.
    settle: Callable[[], None]
    begun: dict[str, Request] = field(default_factory=dict)
    saved: Rows = field(default_factory=dict)

    def run_id(self, starter: str) -> str | None:
        """The run of somebody who started one; the first run when nobody is named."""
        if not starter:
            return next(iter(self.sim.run_ids()), None)
        request = self.begun.get(starter)
        if request is None:
            raise Unreadable(f"{self.scenario.id}: nobody called {starter!r} starts a run")
        return None if request.result is None else str(request.result.id)


def perform(stage: Stage, act: Act) -> None:
    """Do it, or have it asked for."""
    doing = _ACTS.get(act.do)
    if doing is None:
        raise Unreadable(f"{stage.scenario.id}: nobody knows how to {act.do!r}")
    doing(stage, act)


def _ask(
    stage: Stage,
    act: Act,
    ask: Callable[[Client], Coroutine[Any, Any, Any]],
    when: Callable[[], bool] = lambda: True,
) -> list[Request]:
    name = act.name or act.do
    names = [name, *(f"{name} {n}" for n in range(2, act.times + 1))]
    return [stage.sim.ask(each, ask, when=when) for each in names]


def _workflow(stage: Stage, name: str) -> Workflow[..., Any]:
    definition = registry.workflow(name)
    if definition is not None:
        return Workflow(definition, definition.function)
    if name not in UNKNOWN:
        raise Unreadable(f"{stage.scenario.id}: there is no workflow {name!r}")
    return UNKNOWN[name]


def _start(stage: Stage, act: Act) -> None:
    name = act.workflow or stage.scenario.setup.workflow
    workflow = _workflow(stage, name)
    definition = workflow.definition

    async def start(client: Client) -> Any:
        args, kwargs = definition.arguments.decode(json.dumps(dict(act.input)))
        keyed = client.with_options(idempotency_key=act.key) if act.key else client
        return await keyed.start(workflow, *args, **kwargs)

    for request in _ask(stage, act, start):
        stage.begun[request.name] = request


def _rows(stage: Stage, act: Act) -> list[HookRow]:
    """The hooks that an act is about: by id, or by name."""
    sim = stage.sim
    run_id = stage.run_id(act.of) if act.of else None
    database = sim.cluster.local.database
    found = database.query(
        "SELECT run_id, hook_id FROM hooks WHERE hook_id = ? OR name = ?", act.hook, act.hook
    )
    ids = [(run, hook) for run, hook in found if run_id in (None, run)]
    rows = [sim.cluster.done(sim.cluster.local.store.get_hook(*each)) for each in ids]
    return [row for row in rows if row is not None]


def _with_token(
    stage: Stage, act: Act, ask: Callable[[Client, str], Coroutine[Any, Any, Any]]
) -> None:
    found: list[str] = []

    def there() -> bool:
        if not found:
            keyring = stage.sim.cluster.settings.keyring
            rows = _rows(stage, act)[:1]
            found.extend(keyring.token(row.key_id, row.run_id, row.hook_id) for row in rows)
        return bool(found)

    async def with_token(client: Client) -> Any:
        token = found[0]
        if act.what == "forged":
            token = token[:-1] + ("A" if token[-1] != "A" else "B")
        return await ask(client, token)

    _ask(stage, act, with_token, there)


def _answer(stage: Stage, act: Act) -> None:
    _with_token(stage, act, lambda client, token: client.resume_hook(token, act.payload))


def _answer_each(stage: Stage, act: Act) -> None:
    """Everybody at once, each another hook of the name."""
    for row in _rows(stage, act):
        _answer(stage, replace(act, hook=row.hook_id, name=f"answers {row.hook_id}"))


def _look(stage: Stage, act: Act) -> None:
    _with_token(stage, act, lambda client, token: client.get_hook(token))


def _of_run(stage: Stage, act: Act, ask: Callable[[Client, str], Coroutine[Any, Any, Any]]) -> None:
    def there() -> bool:
        return stage.run_id(act.of) is not None

    async def of_run(client: Client) -> Any:
        run_id = stage.run_id(act.of)
        assert run_id is not None
        return await ask(client, run_id)

    _ask(stage, act, of_run, there)


def _cancel(stage: Stage, act: Act) -> None:
    _of_run(stage, act, lambda client, run_id: client.cancel(run_id, "not wanted"))


def _delete(stage: Stage, act: Act) -> None:
    _of_run(stage, act, lambda client, run_id: client.delete(run_id))


def _send(stage: Stage, act: Act) -> None:
    _of_run(
        stage,
        act,
        lambda client, run_id: client.put_inbox(
            run_id, act.key, act.payload, entry_id=act.what or f"{act.name}-{act.key}"
        ),
    )


def _emit(stage: Stage, act: Act) -> None:
    """Send a signal of the type `what`."""
    stream, _, run = act.stream.partition("/")

    async def emit(client: Client) -> Any:
        return await client.emit(
            stream, act.what, act.payload, stream_run_id=run, idempotency_key=act.key or None
        )

    _ask(stage, act, emit)


def _mend_signal(stage: Stage, act: Act) -> None:
    """Have the first parked signal of the step `what` handled again, or given up."""
    stream, _, run = act.stream.partition("/")

    async def mend(client: Client) -> Any:
        parked = await client.parked_signals(stream, act.what, stream_run_id=run)
        action: MendAction = "redrive" if act.do == "redrive-signal" else "discard"
        sequence = parked[0].sequence
        return await client.mend_signal(stream, act.what, sequence, action, stream_run_id=run)

    _ask(stage, act, mend)


def _resume(stage: Stage, act: Act) -> None:
    _of_run(stage, act, lambda client, run_id: client.resume(run_id))


def _wake(stage: Stage, act: Act) -> None:
    _of_run(stage, act, lambda client, run_id: client.wake(run_id))


def _advance(stage: Stage, act: Act) -> None:
    cluster = stage.sim.cluster
    until = cluster.loop.now() + to_millis(act.by)
    stage.sim.trace.append(f"{act.by} pass by")
    stage.settle()
    for _ in range(1_000):
        upcoming = [int(each.label.split(" ", 1)[0]) for each in passing(cluster)]
        if not upcoming or cluster.loop.now() + upcoming[0] > until:
            pass_until(cluster, until)
            return
        pass_until(cluster, cluster.loop.now() + upcoming[0])
        stage.settle()
    raise Unreadable(f"{stage.scenario.id}: {act.by} bring no end")


def _sweep(stage: Stage, act: Act) -> None:
    begin_sweep(stage.sim.cluster)


def _redrive(stage: Stage, act: Act) -> None:
    """Everything that was done with, or is dead, is sent again, as often as is asked for."""
    cluster = stage.sim.cluster
    for queue in (cluster.queue, cluster.steps, cluster.signals):
        letters = [*queue.done_with, *queue.dead, *queue.buried]
        for letter in letters * act.times:
            queue.redrive(letter)


def _fire_deleted(stage: Stage, act: Act) -> None:
    """Every schedule that was taken back fires all the same."""
    scheduler = stage.sim.cluster.scheduler
    keys = sorted(scheduler.deleted)
    assert keys, "no schedule was taken back"
    for key in keys:
        stage.sim.cluster.done(scheduler.fire_deleted(key))


def _deploy(stage: Stage, act: Act) -> None:
    """Other code is there from now on."""
    stage.layers.enter_context(registry.isolated())
    DEPLOYMENTS[act.what]()


def _break(stage: Stage, act: Act) -> None:
    """The faults of the script begin here, and not before."""
    stage.script.armed = True


def _mend(stage: Stage, act: Act) -> None:
    """Nothing of the script goes wrong any more."""
    stage.script.end()


def _see(stage: Stage, act: Act) -> None:
    """A run has this status or this note at this moment."""
    run_id = stage.run_id(act.of)
    assert run_id is not None, "there is no run to see"
    header = stage.sim.facts(run_id).rows.header
    assert header is not None
    note = "" if header.attention is None else header.attention.kind
    assert act.what in (header.status, note), f"it is {header.status} {note}, not {act.what}"


def _tell(stage: Stage, act: Act) -> None:
    """Something is so outside, such as that an outage is over."""
    outside().request(act.what, act.name, "yes")


def _lose(stage: Stage, act: Act) -> None:
    """All that is kept apart from its record is lost: blobs, or the messages of the queues."""
    if act.what == "blobs":
        stage.sim.cluster.local.database.change("DELETE FROM blobs")
        return
    assert act.what == "messages", act.what
    for queue in (stage.sim.cluster.queue, stage.sim.cluster.steps):
        queue.letters.clear()
    scheduler = stage.sim.cluster.scheduler
    scheduler.lost.append(("all", "messages", 0))  # from here on only a sweep can help
    scheduler.standing.clear()


def _save(stage: Stage, act: Act) -> None:
    """Keep the table as it is now."""
    query = stage.sim.cluster.local.database.query
    tables = query(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    )
    stage.saved = {name: query(f"SELECT * FROM {name}") for (name,) in tables}


def _restore(stage: Stage, act: Act) -> None:
    """Have the table as it was when it was kept; queues and schedules stay as they are."""
    database = stage.sim.cluster.local.database
    with database.writing():
        for name, rows in stage.saved.items():
            database.change(f"DELETE FROM {name}")
            for row in rows:
                marks = ", ".join("?" * len(row))
                database.change(f"INSERT INTO {name} VALUES ({marks})", *row)


_ACTS: dict[str, Callable[[Stage, Act], None]] = {
    "start": _start,
    "answer": _answer,
    "answer-each": _answer_each,
    "look": _look,
    "cancel": _cancel,
    "delete": _delete,
    "send": _send,
    "emit": _emit,
    "redrive-signal": _mend_signal,
    "discard-signal": _mend_signal,
    "resume": _resume,
    "wake": _wake,
    "advance": _advance,
    "sweep": _sweep,
    "redrive": _redrive,
    "fire-deleted": _fire_deleted,
    "deploy": _deploy,
    "break": _break,
    "mend": _mend,
    "see": _see,
    "tell": _tell,
    "lose": _lose,
    "save": _save,
    "restore": _restore,
}
