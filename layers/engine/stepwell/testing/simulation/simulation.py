"""A whole deployment in one thread, in which nothing happens unless it is chosen to happen.

    with Simulation(faults=Faults(crashes=1)) as sim:
        sim.ask("start", lambda c: c.with_options(idempotency_key="1").start(refund, order))
        sim.answer("approval", {"approved": True})
        sim.run(Seeded(42))
        sim.check()

Turns, attempts of dispatched steps, callers and the sweep are processes. Every port call of each
waits until it is chosen, so the calls of all of them come in any order. The store is the real local
one; queues, schedules and clocks are simulated, with all that they may do. One list of choices
gives one history; `trace` tells it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import partial
from typing import Any, Self

from stepwell.authoring.registry import Registry, registry
from stepwell.client import Client
from stepwell.core.messages import load_attempt
from stepwell.core.payload import Sizes
from stepwell.core.records import HookRow, Millis, RunHeader
from stepwell.core.signals import StreamKey
from stepwell.core.state import fold
from stepwell.core.tokens import Keyring
from stepwell.engine.settings import Limits
from stepwell.engine.sweep import GRACE
from stepwell.testing.facts import (
    RunFacts,
    gather_lists,
    gather_run,
    gather_stream,
    streams_of,
)
from stepwell.testing.laws import check_deployment, check_replays_of
from stepwell.testing.simulation import work
from stepwell.testing.simulation.actions import Action, pass_until, possible
from stepwell.testing.simulation.choices import Choices, FirstOf
from stepwell.testing.simulation.cluster import Cluster, Request
from stepwell.testing.simulation.faults import Faults

#: More actions than any simulated run needs: beyond them it goes round in circles.
_MOST_ACTIONS = 20_000
#: How often a run that somebody must look at is looked at.
_WAKES = 3
#: How often a simulated day is swept at most.
_SWEEPS = 20


class Unsettled(AssertionError):
    """A simulated run does not come to rest."""


class Simulation:
    """One simulated deployment, from its beginning to its rest.

    A caller whose process dies asks again, as somebody does who got no reply: give starts a key, or
    there are two runs. `run` and `step` let things happen; `check` holds all laws, and is not
    called by itself. `trace` and `chosen` tell what happened, a `Request` what its caller was told.

    `skews` are how far the workers' clocks are off, in ms, in turn; with `paged`, a run is read in
    pages between which others write. `seed` fixes ids; who decides what happens is given to `run`.
    """

    def __init__(
        self,
        *,
        faults: Faults | None = None,
        registry: Registry = registry,
        seed: int | str = 0,
        workers: int = 2,
        skews: Sequence[Millis] = (0,),
        paged: bool = False,
        sizes: Sizes | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._faults = faults or Faults()
        self.cluster = Cluster(
            self._faults,
            registry=registry,
            seed=seed,
            workers=workers,
            skews=skews,
            paged=paged,
            sizes=sizes or Sizes(),
            limits=limits or Limits(),
        )
        #: What happened, one line each, and the choices that led to it.
        self.trace: list[str] = []
        self.chosen: list[int] = []
        self._wakes: dict[str, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cluster.close()

    def ask(
        self,
        name: str,
        ask: Callable[[Client], Coroutine[Any, Any, Any]],
        *,
        when: Callable[[], bool] = lambda: True,
    ) -> Request:
        """Have somebody ask for something, at any moment at which `when` holds."""
        request = Request(name, ask, when)
        self.cluster.requests.append(request)
        return request

    def answer(self, hook: str, payload: Any, *, name: str | None = None) -> Request:
        """Have somebody answer a hook, at any moment from the one on at which it is there.

        If a process has frozen, or its step is dispatched, only from when the log knows it: a hook
        that is opened by whoever was overtaken, while its run ends, is nobody's.
        """
        found: list[str] = []

        def there() -> bool:
            if not found:
                rows = self.hooks(hook)[:1]
                found.extend(self._token(row) for row in rows if self._is_known(row))
            return bool(found)

        async def answer(client: Client) -> Any:
            return await client.resume_hook(found[0], payload)

        return self.ask(name or f"answers {hook}", answer, when=there)

    def cancel(self, *, when: Callable[[], bool] | None = None) -> Request:
        """Have somebody cancel the first run, at any moment from when it is there."""

        async def cancel(client: Client) -> Any:
            return await client.cancel(self.run_ids()[0], "not wanted")

        return self.ask("cancels", cancel, when=when or (lambda: bool(self.run_ids())))

    def delete(self) -> Request:
        """Have somebody delete the first run, at any moment from its end on."""

        async def delete(client: Client) -> Any:
            return await client.delete(self.run_ids()[0])

        def ended() -> bool:
            return any(header.status.terminal for header in self.headers()[:1])

        return self.ask("deletes", delete, when=ended)

    def run(self, choices: Choices | None = None) -> None:
        """Let things happen until nothing can happen any more by itself."""
        for _ in range(_MOST_ACTIONS):
            if not self.step(choices):
                return
        raise Unsettled(f"no rest after {_MOST_ACTIONS} actions, the last one {self.trace[-1]!r}")

    def step(self, choices: Choices | None = None) -> bool:
        """Let one thing happen. Whether there was one that could."""
        self.cluster.go_on()
        actions = possible(self.cluster) or self._rescue()
        if not actions:
            return False
        chosen = 0
        if len(actions) > 1:
            chosen = (choices or FirstOf()).choose(actions, self.cluster.state)
            self.chosen.append(chosen)
        self.trace.append(actions[chosen].label)
        actions[chosen].do()
        return True

    def perform(self, label: str) -> None:
        """Let one thing happen, by its label or the end of it; for scripts."""
        self.cluster.go_on()
        actions = possible(self.cluster)
        found = [each for each in actions if each.label == label]
        found = found or [each for each in actions if each.label.endswith(label)]
        if not found:
            raise LookupError(f"{label!r} cannot happen now: {[each.label for each in actions]}")
        self.trace.append(found[0].label)
        found[0].do()
        self.cluster.go_on()

    def _rescue(self) -> list[Action]:
        """What only a sweep, or a person, can bring about."""
        cluster = self.cluster
        if cluster.queue.dead or cluster.steps.dead:
            return [Action("the sweep takes dead letters", partial(work.begin_sweep, cluster))]
        for letter in cluster.signals.dead:
            again = partial(cluster.signals.redrive, letter)
            return [Action(f"somebody redrives {letter.message_id}", again)]
        overdue = min(self._due(), default=None)
        if overdue is not None and cluster.record.swept < _SWEEPS:
            due, ended = overdue
            if not (
                ended or cluster.scheduler.lost or cluster.queue.buried or cluster.steps.buried
            ):
                # A sweep makes up for what was lost, and hides what was forgotten.
                error = AssertionError(f"nothing but a sweep wakes what is due at {due}")
                cluster.record.unexpected.append(error)
            return [Action("the sweep finds what is overdue", partial(self._sweep_at, due))]
        for header in self.headers():
            if header.attention is not None and self._wakes.get(header.run_id, 0) < _WAKES:
                wake = partial(self._wake, header.run_id)
                return [Action(f"somebody wakes {header.run_id}", wake)]
        return []

    def _due(self) -> Iterator[tuple[Millis, bool]]:
        """When waits are due that a sweep finds, and whether their run has ended."""
        headers = {header.run_id: header for header in self.headers()}
        for header in headers.values():
            stuck = header.attention is not None and header.attention.kind == "STUCK"
            if stuck:
                continue
            if header.due is not None:
                yield header.due, False
            rows = self._hooks("WHERE status = 'PENDING' AND run_id = ?", header.run_id)
            for row in rows:
                if row.expires_at is not None:
                    yield row.expires_at, header.status.terminal

    def _sweep_at(self, due: Millis) -> None:
        pass_until(self.cluster, max(due + GRACE + 1_000, self.cluster.loop.now() + 60_000))
        work.begin_sweep(self.cluster)

    def _wake(self, run_id: str) -> None:
        self._wakes[run_id] = self._wakes.get(run_id, 0) + 1
        client = Client(self.cluster.ports, self.cluster.settings)
        self.cluster.done(client.wake(run_id))

    def injected(self) -> Counter[str]:
        """How many faults of each kind have come."""
        left = self.cluster.left
        return Counter({kind: most - left[kind] for kind, most in self._faults.budget().items()})

    def run_ids(self) -> list[str]:
        """All runs, the oldest first."""
        rows = self.cluster.local.database.query(
            "SELECT run_id FROM runs ORDER BY recency DESC, run_id"
        )
        return [row[0] for row in rows]

    def headers(self) -> list[RunHeader]:
        """The headers of all runs."""
        store = self.cluster.local.store
        found = [self.cluster.done(store.get_header(run_id)) for run_id in self.run_ids()]
        return [header for header in found if header is not None]

    def hooks(self, name: str) -> list[HookRow]:
        """The hooks of a name, whatever became of them."""
        return self._hooks("WHERE name = ?", name)

    def _hooks(self, where: str, *values: str) -> list[HookRow]:
        local = self.cluster.local
        found = local.database.query(f"SELECT run_id, hook_id FROM hooks {where}", *values)  # noqa: S608
        rows = [
            self.cluster.done(local.store.get_hook(run_id, hook_id)) for run_id, hook_id in found
        ]
        return [row for row in rows if row is not None]

    def _is_known(self, row: HookRow) -> bool:
        rows = self.cluster.done(self.cluster.local.store.load(row.run_id))
        dispatched = row.step in {each.step for each in rows.steps}
        if not (self.cluster.record.frozen or dispatched):
            return True
        return row.hook_id in fold(e for each in rows.commits for e in each.events).hooks

    def _token(self, row: HookRow) -> str:
        keyring: Keyring = self.cluster.settings.keyring
        return keyring.token(row.key_id, row.run_id, row.hook_id)

    def facts(self, run_id: str) -> RunFacts:
        """All that is to be known of a run."""
        cluster = self.cluster
        letters = [each for each in cluster.steps.letters if each.group == run_id]
        gathered = gather_run(
            cluster.local.store,
            run_id,
            blobs=cluster.local.blobs,
            timer=cluster.scheduler.next_due(run_id),
            attempts=frozenset(load_attempt(each.body).order for each in letters),
            in_queue=cluster.queue.holds(run_id) or bool(cluster.frozen),
        )
        return cluster.done(gathered)

    @property
    def unasked(self) -> list[str]:
        """Requests that never began, since what they wait for was never there."""
        return [each.name for each in self.cluster.requests if not each.begun and not each.answered]

    def check(self) -> None:
        """All laws, on all runs; and what callers were told must be true."""
        cluster = self.cluster
        for error in cluster.record.unexpected:
            raise error
        facts = [self.facts(run_id) for run_id in self.run_ids()]
        lists = cluster.done(gather_lists(cluster.local.store))
        streams = [
            cluster.done(gather_stream(cluster.local.ports.streams, key, quiet=self._is_quiet(key)))
            for key in sorted({*streams_of(facts), *cluster.promises.signals})
        ]
        check_deployment(lists, facts, cluster.registry.workflow, cluster.promises, streams)
        for each in facts:
            header = each.rows.header
            step = None if header is None else cluster.registry.stream_step(header.workflow)
            if step is not None and header is not None and header.attention is None:
                check_replays_of(each, step)

    def _is_quiet(self, key: StreamKey) -> bool:
        cluster = self.cluster
        on_its_way = cluster.signals.holds(key.owner) or cluster.signal_scheduler.holds(key.owner)
        return not on_its_way and not cluster.frozen
