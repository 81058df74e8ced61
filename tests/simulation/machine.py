"""A deployment under a state machine: what may be done to it, and what must hold all the time.

It keeps who asked for what. From that and from what each was told follows what may become of every
run; laws and promises hold besides.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from typing import Any

from examples.outside import use
from stepwell.client import Client
from stepwell.core import events as e
from stepwell.core.ids import run_id_for
from stepwell.core.records import HookRow, HookStatus, Millis, RunHeader, RunStatus
from stepwell.core.tokens import Keyring
from stepwell.engine.sweep import GRACE
from stepwell.errors import (
    HookAlreadyDecided,
    HookExpired,
    IdempotencyConflict,
    InvalidToken,
    PayloadRejected,
)
from stepwell.testing.facts import RunFacts, gather_lists
from stepwell.testing.laws import check_deployment, check_facts
from stepwell.testing.simulation import FirstOf, Simulation, work
from stepwell.testing.simulation.actions import Action, pass_until, passing, possible
from tests.simulation.offers import APPROVED, CHANGING, CODES, OFFERS, REFUSED, Code
from tests.simulation.reference import Asked, Ledger, check_looked, check_outcome

_FOREIGN = Keyring({"k1": b"of another deployment altogether"})
_MOST_QUIET = 2_000
#: In one minute of so many, at the least, the sweep wakes a run that is long overdue.
_MOST_SWEEPS = 130


class World:
    """One deployment, and what is known of it from outside."""

    def __init__(self, *, seed: int = 0, paged: bool = False, skewed: bool = False) -> None:
        self.ledger = Ledger()
        use(self.ledger)
        self.code = Code()
        skews = (0, 1_500, -1_500) if skewed else (0,)
        self.sim = Simulation(registry=self.code, seed=seed, skews=skews, paged=paged)
        self.cluster = self.sim.cluster
        self.asked: list[Asked] = []
        #: What was last seen of each run, the oldest first.
        self.seen: dict[str, RunFacts] = {}
        self._told = 0
        #: Whether a fault came, or time that was too long for what was under way.
        self._harmed = False
        self._reading = Client(self.cluster.ports, self.cluster.settings)

    def close(self) -> None:
        """Let everything go."""
        self.sim.__exit__()

    # What happens by itself.

    def _possible(self, kind: str | None = None) -> list[Action]:
        """What may happen now; with one fault of a kind, if it is given."""
        left = self.cluster.left
        left.update(dict.fromkeys(left, 0))
        if kind is not None:
            left[kind] = 1
        self.cluster.go_on()
        return possible(self.cluster)

    def usual(self) -> list[Action]:
        """What may happen now without a fault."""
        return [each for each in self._possible() if not each.label.endswith(" thaws")]

    def faults(self, kind: str) -> list[Action]:
        """The faults of a kind that may happen now; "thaws" is one of them."""
        if kind == "thaws":
            return [each for each in self._possible() if each.label.endswith(" thaws")]
        known = {each.label for each in self._possible()}
        return [each for each in self._possible(kind) if each.label not in known]

    def act(self, actions: list[Action], which: int) -> bool:
        """Let one of them happen; the last one, if there are not so many. Whether there was one."""
        if actions:
            action = actions[min(which, len(actions) - 1)]
            self.sim.trace.append(action.label)
            action.do()
            self.cluster.go_on()
            self._watch_if_told()
        return bool(actions)

    def disturb(self, kind: str, which: int) -> None:
        """Let one of the faults of a kind come, if there is one."""
        self._harmed = self.act(self.faults(kind), which) or self._harmed

    def _watch_if_told(self) -> None:
        """What somebody is told must be true at once, not only a little later."""
        told = sum(bool(each.request.result or each.request.error) for each in self.asked)
        if told != self._told:
            self._told = told
            self.watch()

    def settle(self) -> None:
        """Let all happen that can without time passing."""
        for _ in range(_MOST_QUIET):
            actions = self.usual()
            if not actions or actions[0].label.endswith(" pass"):
                return
            self.act(actions, 0)
        raise AssertionError("it goes on and on")

    def wait(self, time: Millis) -> None:
        """Let time pass, in steps, so that whatever has a time is up at that."""
        self._harmed = self._harmed or any(each.busy for each in self.cluster.processes())
        target = self.cluster.loop.now() + time
        self.sim.trace.append(f"{time} ms pass")
        while (now := self.cluster.loop.now()) < target:
            pass_until(self.cluster, min(next(_moments(self.cluster), target), target))
            self.cluster.go_on()
            assert self.cluster.loop.now() > now

    # What somebody does.

    def _ask(
        self, kind: str, ask: Callable[[Client], Coroutine[Any, Any, Any]], **more: Any
    ) -> None:
        request = self.sim.ask(f"{len(self.asked) + 1} {kind}", ask)
        self.asked.append(Asked(kind=kind, request=request, **more))

    def start(self, name: str, key: str | None, variant: int) -> None:
        """Start a run."""
        offer = OFFERS[name]
        args = offer.inputs[variant % len(offer.inputs)]

        async def ask(client: Client) -> Any:
            asking = client if key is None else client.with_options(idempotency_key=key)
            return await asking.start(offer.workflow, *args)

        run_id = None if key is None else run_id_for(offer.workflow.definition.name, key)
        others = [
            each
            for each in self.asked
            if each.run_id == run_id is not None and each.offer and each.input != args
        ]
        self._ask(
            "starts",
            ask,
            offer=offer,
            input=args,
            run_id=run_id,
            refusals=(IdempotencyConflict,) if others else (),
        )

    def count(self, kind: str) -> int:
        """How often somebody asked for something of a kind."""
        return sum(each.kind == kind for each in self.asked)

    def hooks(self) -> list[HookRow]:
        """All hooks, whatever became of them; those that wait come first."""
        rows = [row for facts in self.seen.values() for row in facts.rows.hooks]
        return sorted(rows, key=lambda row: row.status is not HookStatus.PENDING)

    def answer(self, row: HookRow, payload: Any) -> None:
        """Answer a hook."""
        token = self.cluster.settings.keyring.token(row.key_id, row.run_id, row.hook_id)
        wrong = row.schema is not None and payload not in (APPROVED, REFUSED)
        refusals = (HookAlreadyDecided, HookExpired, *([PayloadRejected] if wrong else []))
        self._ask(
            "answers",
            lambda client: client.resume_hook(token, payload),
            refusals=refusals,
            run_id=row.run_id,
            hook_id=row.hook_id,
            payload=payload,
        )
        assert not wrong or row.name == "approval"

    def forge(self, row: HookRow) -> None:
        """Answer a hook with a token that was not made for it."""
        token = _FOREIGN.token("k1", row.run_id, row.hook_id)
        self._ask(
            "forges", lambda client: client.resume_hook(token, "forged"), refusals=(InvalidToken,)
        )

    def cancel(self, run_id: str) -> None:
        """Cancel a run."""

        async def ask(client: Client) -> bool:
            await client.cancel(run_id, "not wanted")
            return True

        self._ask("cancels", ask, run_id=run_id)

    def wake(self, run_id: str) -> None:
        """Wake a run."""
        self._ask("wakes", lambda client: client.wake(run_id))

    def look(self, run_id: str) -> None:
        """Read a run's header and its history."""

        async def ask(client: Client) -> tuple[RunHeader, list[e.Event]]:
            header = await client.get(run_id)
            return header, [each.event for each in await client.history(run_id)]

        self._ask("looks", ask, run_id=run_id)

    def sweep(self) -> None:
        """Have the sweep begin, unless it is under way."""
        if not self.cluster.sweeper.busy:
            self.sim.trace.append("the sweep begins")
            work.begin_sweep(self.cluster)
            self.cluster.go_on()

    def deploy(self, code: str, *, publish: bool) -> None:
        """Deploy other code, and tell blocked runs of it."""
        self.sim.trace.append(f"code {code!r} is deployed")
        self.code.deployed = code
        definition = CODES[code]
        if publish and definition is not None:
            self.cluster.done(self._reading.publish([definition], wake_all=True))

    # What must hold.

    def watch(self) -> None:
        """What always holds, of every run."""
        self.cluster.go_on()
        for unexpected in self.cluster.record.unexpected:
            raise unexpected
        assert not self.ledger.conflicts, self.ledger.conflicts
        for run_id in reversed(self.sim.run_ids()):
            facts = replace(self.sim.facts(run_id), in_queue=True)  # it may go on at any moment
            before = self.seen.get(run_id)
            if facts != before:
                self._check_grown(before, facts)
                assert facts.rows.header is not None
                check_facts(facts, self._workflow(facts.rows.header.workflow))
            self.seen[run_id] = facts
            self.cluster.promises.check(facts)
        for asked in self.asked:
            error = asked.request.error
            assert error is None or isinstance(error, asked.refusals), f"{asked}: {error!r}"

    @staticmethod
    def _check_grown(before: RunFacts | None, facts: RunFacts) -> None:
        if before is None:
            return
        known = len(before.rows.commits)
        assert facts.rows.commits[:known] == before.rows.commits, "what was recorded has changed"
        was, is_ = before.rows.header, facts.rows.header
        assert was is not None
        assert is_ is not None
        assert is_.last_event >= was.last_event, f"the header goes back: {was}, {is_}"
        assert not was.status.terminal or is_.status is was.status, f"{was.status}, {is_.status}"
        rows = {row.hook_id: row for row in facts.rows.hooks}
        for row in before.rows.hooks:
            stands = rows.get(row.hook_id)
            decided = row.status is not HookStatus.PENDING
            assert stands is not None, f"hook {row.hook_id!r} is gone"
            assert not decided or stands == row, f"decided again: {row}, {stands}"

    def _workflow(self, name: str) -> Any:
        """The code that a run was played by; nobody knows it of the workflow that changes."""
        return None if name == CHANGING else self.code.workflow(name)

    def rest(self) -> None:
        """Let all come to rest without further faults, under all code that there is."""
        self._possible()
        for process in list(self.cluster.frozen):
            process.die()
        for code in ("first", "more"):
            self.deploy(code, publish=True)
            self._go_on_alone()
            self._sweep_all()
            self.cluster.record.swept = 0
            self.sim.run(FirstOf())

    def _go_on_alone(self) -> None:
        """Where nothing went wrong, nothing is left for a sweep to find."""
        self.settle()
        if self._harmed:
            return
        while actions := self.usual():
            self.act(actions, 0)
        for header in self.sim.headers():
            left = header.due is not None or header.status is RunStatus.PENDING
            assert not left or header.attention, f"nothing went wrong, and it is left so: {header}"

    def _sweep_all(self) -> None:
        """Sweep every minute while something is overdue; a sweep does not wake all of it."""
        store, now = self.cluster.local.store, self.cluster.loop.now
        for _ in range(_MOST_SWEEPS):
            late = now() - GRACE
            runs = self.cluster.done(store.overdue_runs(late, 1))
            if not runs and not self.cluster.done(store.overdue_hooks(late, 1)):
                return
            self.wait(60_000)
            self.sweep()
            self.settle()

    def check(self) -> None:
        """All that must hold when all has come to rest."""
        self.watch()
        facts = [self.sim.facts(run_id) for run_id in self.sim.run_ids()]
        lists = self.cluster.done(gather_lists(self.cluster.local.store))
        check_deployment(lists, facts, self._workflow, self.cluster.promises)
        for each in facts:
            try:
                check_outcome(each, self.asked, self.ledger)
            except AssertionError as error:
                raise AssertionError(f"run {each.run_id!r}: {error}") from error
        for asked in self.asked:
            if asked.kind == "looks" and asked.told:
                check_looked(asked, self.seen[asked.run_id or ""])


def _moments(cluster: Any) -> Iterator[Millis]:
    for action in passing(cluster):
        yield cluster.loop.now() + int(action.label.split(" ", 1)[0])
