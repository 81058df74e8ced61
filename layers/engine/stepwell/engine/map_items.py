"""One item of a dispatched map, made outside of the run's turns.

    look at the shard → run the body → put what came of it → tell the shard → go on

What an item came to is put once, and its shard is told of it in a change that may be repeated. So a
message that comes again finds what is done, and only repeats what may have been left out: the next
item of its lane, the row at the top, the wake-up of the run. No log is read. What needs one (a hook
in the middle, a long delay before the next attempt) is handed over to the run, which goes on with
that item as with any dispatched step.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from stepwell.core import events as e
from stepwell.core.commands import RunStep, Snapshot
from stepwell.core.decide import closing
from stepwell.core.definitions import StepDefinition
from stepwell.core.ids import item_id
from stepwell.core.map_layout import Layout
from stepwell.core.map_outcomes import load_inputs
from stepwell.core.map_rows import ItemEnd, ItemRow, ShardKey, ShardRow, top_of
from stepwell.core.messages import MapItem, MapReported, Wake
from stepwell.core.overrides import overridden
from stepwell.core.parts import StepState
from stepwell.core.payload import codec, digest
from stepwell.core.records import HookRow, Millis, Payload, RunHeader, RunStatus
from stepwell.core.state import RunState, fold_commits
from stepwell.engine.attempt import AttemptEnd, Means
from stepwell.engine.chains import GuardChain, UnknownGuard, found
from stepwell.engine.checkpoints import expire_checkpoint
from stepwell.engine.guarding import GuardedEntry
from stepwell.engine.journal import AttemptJournal, Fenced
from stepwell.engine.outbox import Outbox
from stepwell.engine.outcomes import interrupted_event, log_failure, outcome_event
from stepwell.engine.ports import TransientError
from stepwell.engine.puts import Puts
from stepwell.engine.step_runner import Broken, EntryOutcome, StepEntry
from stepwell.engine.turn_context import TurnContext
from stepwell.engine.values import Values
from stepwell.errors import PayloadError

_LOG = logging.getLogger("stepwell.engine")
#: A longer delay before the next attempt is one of the run's own timers.
LONGEST_DELAY: Millis = 900_000


async def make_item(
    means: Means,
    step: Callable[[str], StepDefinition | None],
    item: MapItem,
    *,
    message_id: str,
    receive_count: int,
    time_left: Millis | None,
) -> AttemptEnd:
    """Make the attempt of an item that a message asks for. See `Engine.run_attempt`."""
    ports, now = means.ports, means.ports.clock.now()
    if item.due is not None and item.due > now:
        await ports.steps.send_items([item], delay=min(item.due - now, LONGEST_DELAY))
        return AttemptEnd.NOTHING
    layout = Layout(item.total, item.concurrency)
    key = ShardKey(item.run_id, item.map, item.order, layout.shard_of(item.index))
    shard = await ports.maps.get_shard(key)
    after = _After(means, item, layout, key)
    again = receive_count > 1
    if shard is None and again:
        await after.clear(message_id)  # whoever received this before may have put something late
    if shard is None or shard.cancelled:
        return AttemptEnd.NOTHING
    if item.index in shard.done:
        # Also if this is no second receive: whoever was given the same one may have died.
        await after.go_on(shard, end_of(shard, item.index))
        return AttemptEnd.NOTHING
    declared = step(item.name)
    if declared is None:
        raise TransientError(f"step {item.name!r} is not registered here")
    known = await ports.maps.get_item(key, item.index) if again else None
    if known is not None and known.status != "started":
        return await after.finish(known, message_id)
    work = _Work(
        means, overridden(declared, item.options), await _looked_up(means, item, layout, shard)
    )
    row = await work.make(key, known, message_id=message_id, again=receive_count, left=time_left)
    if row is not None:
        return await after.finish(row, message_id)
    if work.gone:
        await after.clear(message_id)
    return AttemptEnd.NOTHING


def end_of(shard: ShardRow, member: int) -> ItemEnd:
    """What a member of a shard that is done came to."""
    if member in shard.failed:
        return "failed"
    return "handed" if member in shard.handed else "completed"


async def _looked_up(means: Means, item: MapItem, layout: Layout, shard: ShardRow) -> MapItem:
    """The item with its input, which a lane finds in the row of its shard."""
    if item.input is not None:
        return item
    assert shard.inputs is not None
    text = await Values(means.ports.blobs, means.settings.sizes).get(shard.inputs)
    one = load_inputs(text)[item.index - layout.items(shard.key.shard).start]
    return item.model_copy(update={"item": one.item, "input": one.input})


class _Work:
    """The making of one attempt of one item. `gone` says that its run was deleted meanwhile."""

    def __init__(self, means: Means, definition: StepDefinition, item: MapItem) -> None:
        assert item.item is not None
        assert item.input is not None
        self._means = means
        self._definition = definition
        self._item = item
        self._input: Payload = item.input
        self._id = item_id(item.map, item.item)
        self._values = Values(means.ports.blobs, means.settings.sizes, item.run_id)
        self.gone = False

    async def make(
        self,
        key: ShardKey,
        known: ItemRow | None,
        *,
        message_id: str,
        again: int,
        left: Millis | None,
    ) -> ItemRow | None:
        """What stands of the item then; None when nobody waits for it, or it is tried again."""
        command = await self._command()
        # The death of a process in the first delivery of a message uses up no attempt.
        attempt = self._item.attempt + max(again - 2, 0)
        revision = 1
        if self._definition.at_most_once:
            claim = ItemRow(
                key=key, index=self._item.index, revision=1, status="started", attempt=attempt
            )
            standing = known or await self._means.ports.maps.put_item(claim)
            if standing is not claim and standing.status != "started":
                return standing
            if standing is not claim:  # the attempt was begun, by whomever
                return await self._settle(key, (self._interrupted(command, attempt),), 2)
            revision = 2
        elif attempt > self._definition.retry.max_attempts:
            return await self._settle(key, (self._interrupted(command, attempt - 1),), 1)
        turn = self._context(command, key, attempt, message_id=message_id, again=again, left=left)
        if self._item.inbox or self._item.retried:
            await self._read_log(turn)
        events = await self._run(command, key, turn)
        return None if events is None else await self._settle(key, events, revision)

    async def _command(self) -> RunStep:
        text = await self._values.get(self._input)
        try:
            args, kwargs = self._definition.arguments.decode(text)
        except PayloadError as error:
            # It fitted when it was recorded: it waits for code that fits.
            raise TransientError(f"the input of item {self._id!r} does not fit: {error}") from error
        by_name = self._definition.identity == "name"
        known = digest("") if by_name else self._definition.arguments.digest(args, kwargs)
        return RunStep(self._id, known, self._definition, args, kwargs, self._snapshot())

    def _snapshot(self) -> Snapshot | None:
        text = self._item.context
        if text is None:
            return None
        workflow = self._means.workflow(self._item.workflow)
        if workflow is None or workflow.context is None:
            return Snapshot(text, codec(Any, f"context of step {self._definition.name!r}"))
        return Snapshot(text, workflow.context.codec)

    def _interrupted(self, command: RunStep, attempt: int) -> e.Event:
        now = self._means.ports.clock.now()
        return interrupted_event(command, attempt, now, self._means.fraction())

    async def _run(
        self, command: RunStep, key: ShardKey, turn: TurnContext
    ) -> tuple[e.Event, ...] | None:
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[EntryOutcome] = loop.create_future()

        def take(_: StepEntry, outcome: EntryOutcome) -> None:
            if not ended.done():
                ended.set_result(outcome)

        entry = (StepEntry if turn.guards is None else GuardedEntry)(turn, command, take)
        entry.start()
        try:
            if not await self._watched(entry, ended, key):
                return None
        finally:
            if not ended.done():
                entry.withdraw()
                if entry.task is not None and not entry.blocking:
                    await asyncio.wait({entry.task}, timeout=turn.settings.step_grace / 1000)
            raised = await turn.puts.close()
        outcome = ended.result()
        if isinstance(outcome, Broken):
            if isinstance(outcome.error, Fenced):
                return None
            raise outcome.error
        if raised:
            raise raised[0]
        event = outcome_event(entry, outcome, turn.journal.now(), self._means.fraction)
        log_failure(turn.run_id, event)
        if entry.checkpointed and isinstance(event, e.StepCompleted):
            await expire_checkpoint(self._means.ports, turn.run_id, self._id)
        assert isinstance(turn.journal, AttemptJournal)
        return (*turn.journal.events, event)

    def _context(
        self,
        command: RunStep,
        key: ShardKey,
        attempt: int,
        *,
        message_id: str,
        again: int,
        left: Millis | None,
    ) -> TurnContext:
        means, now = self._means, self._means.ports.clock.now()
        state = _state_of(command, attempt)
        header = _header_of(self._item, now)
        usable = None if left is None else means.settings.usable(left) / 1000

        async def confirm(hook: HookRow) -> None:
            shard = await means.ports.maps.get_shard(key)
            if shard is None or shard.cancelled:
                await means.ports.store.decide_hook(hook.run_id, hook.hook_id, closing(now))
                raise Fenced(f"nobody waits for item {self._id!r} any more")

        journal = AttemptJournal(
            means.ports.store, means.ports.clock, key.run_id, message_id, state
        )
        return TurnContext(
            header=header,
            ports=means.ports,
            settings=means.settings,
            pool=means.pool,
            notifiers=means.notifiers,
            puts=Puts(),
            outbox=Outbox(means.ports, key.run_id, journal),
            state=state,
            journal=journal,
            values=self._values,
            rows={},
            steps={},
            time=now,
            message_id=message_id,
            overtakes=again > 1 or attempt > 1,
            settled=True,
            ends_at=None if usable is None else asyncio.get_running_loop().time() + usable,
            confirm=confirm,
            guards=self._guards(),
        )

    async def _read_log(self, turn: TurnContext) -> None:
        """Let the body see the inbox of its run, and ask anew what was left open before a retry.

        The log is read only for items of runs that have an inbox, or were retried.
        """
        rows = await turn.ports.store.load(turn.run_id)
        state = fold_commits(rows.commits)
        turn.state.lives = state.lives
        turn.state.inbox.update(state.inbox)
        turn.texts.update(await self._values.texts(state.inbox.values()))

    def _guards(self) -> GuardChain | None:
        if self._item.guards is None:
            return None
        try:
            return found(self._item.guards, self._means.guard)
        except UnknownGuard as error:
            raise TransientError(str(error)) from error

    async def _watched(
        self, entry: StepEntry, ended: asyncio.Future[EntryOutcome], key: ShardKey
    ) -> bool:
        """Wait for the end, looking now and then whether anybody still waits. Whether so."""
        every = self._means.settings.look_every / 1000
        while True:
            await asyncio.wait({ended}, timeout=every)
            if ended.done():
                return True
            try:
                shard = await self._means.ports.maps.get_shard(key)
            except TransientError as error:
                _LOG.info("item %r was not looked after: %s", self._id, error)
                continue
            if shard is None or shard.cancelled:
                self.gone = shard is None
                entry.flag_cancelled()
                return ended.done()

    async def _settle(
        self, key: ShardKey, events: tuple[e.Event, ...], revision: int
    ) -> ItemRow | None:
        """Put what an attempt came to, or send for the next one. What stands then."""
        last = events[-1]
        if isinstance(last, e.StepRetryScheduled):
            delay = max(last.due - self._means.ports.clock.now(), 0)
            if delay <= LONGEST_DELAY and not self._definition.at_most_once and len(events) == 1:
                more = {"attempt": last.attempt + 1, "due": last.due}
                following = self._item.model_copy(update=more)
                await self._means.ports.steps.send_items([following], delay=delay)
                return None
        return await self._means.ports.maps.put_item(self._row(key, events, revision))

    def _row(self, key: ShardKey, events: tuple[e.Event, ...], revision: int) -> ItemRow:
        last = events[-1]
        assert isinstance(
            last, e.StepCompleted | e.StepFailed | e.StepRetryScheduled | e.StepSuspended
        )
        row = ItemRow(
            key=key,
            index=self._item.index,
            revision=revision,
            status="handed",
            attempt=last.attempt,
        )
        if isinstance(last, e.StepCompleted):
            return replace(row, status="completed", result=last.result)
        if isinstance(last, e.StepFailed):
            return replace(row, status="failed", error=last.error, reason=last.reason)
        begun = e.StepStarted(
            at=last.at,
            step=self._id,
            name=last.name,
            digest=last.digest,
            attempt=last.attempt,
            input=self._input,
            options=self._item.options,
            context=self._item.context,
        )
        return replace(row, events=e.dump_events((begun, *events)).decode())


def _state_of(command: RunStep, attempt: int) -> RunState:
    """As much of a run as an entry of an item has to know: that it goes on, and which attempt."""
    state = RunState()
    state.status = "running"
    if attempt > 1:
        state.steps[command.id] = StepState(
            command.id, command.step.name, command.digest, "retrying", attempts=attempt - 1
        )
    return state


def _header_of(item: MapItem, now: Millis) -> RunHeader:
    return RunHeader(
        run_id=item.run_id,
        workflow=item.workflow,
        version="",
        status=RunStatus.SUSPENDED,
        input="null",
        input_digest="",
        seed="",
        created_at=now,
        updated_at=now,
        stream_run=item.stream_run,
    )


class _After:
    """What follows when an item has its outcome; each part of it may be repeated."""

    def __init__(self, means: Means, item: MapItem, layout: Layout, key: ShardKey) -> None:
        self._ports = means.ports
        self._item = item
        self._layout = layout
        self._key = key
        self._top = top_of(item.run_id, item.map, item.order, layout)

    async def finish(self, row: ItemRow, message_id: str) -> AttemptEnd:
        """Tell the shard, and go on."""
        assert row.status != "started"
        shard = await self._ports.maps.finish(
            self._key, row.index, row.status, lane=self._item.lane, at=self._ports.clock.now()
        )
        if shard is None:
            await self.clear(message_id)
            return AttemptEnd.NOTHING
        await self.go_on(shard, row.status)
        return AttemptEnd.REPORTED

    async def clear(self, message_id: str) -> None:
        """The run was deleted: delete what was put too late.

        A turn does so with all but rows of maps: the log that told of these is gone.
        """
        await self._ports.maps.erase_shard(self._key)
        await self._ports.queue.send(Wake(run_id=self._key.run_id, cause=message_id))

    async def go_on(self, shard: ShardRow, end: ItemEnd) -> None:
        """Send the lane's next item; tell the top; wake the run, if it waits for that."""
        if shard.cancelled:
            return
        await self._send_next(shard)
        single = self._layout.shards == 1
        wanted = {"failed": self._item.fail_at, "completed": self._item.enough_at}
        counted = wanted.get(end, 0) is not None
        top = shard if single else None
        if counted and not single:
            top = await self._ports.maps.count(self._top, end, at=self._ports.clock.now())
        if shard.through and not single:
            await self._send_after(shard)
            top = await self._ports.maps.finish(
                self._top, shard.key.shard, "completed", lane=None, at=self._ports.clock.now()
            )
        if top is not None:
            await self._wake(top, end, single=single)

    async def _send_next(self, shard: ShardRow) -> None:
        lane = self._item.lane
        if lane is None:
            return
        following = shard.lanes[lane]
        if following < shard.end and following not in shard.done:
            await self._ports.steps.send_items([self._of(following, lane)])

    async def _send_after(self, shard: ShardRow) -> None:
        """This shard is through: its lanes go to the next one of their group."""
        after = self._layout.after(shard.key.shard)
        if after is None:
            return
        first = self._layout.items(after)[: self._layout.lanes(after)]
        row = await self._ports.maps.get_shard(shard.key._replace(shard=after))
        if row is None or row.cancelled:
            return
        # Those that have gone on since this was done before need nobody to begin them.
        left = [n for n in first if n in row.lanes and n not in row.done]
        await self._ports.steps.send_items([self._of(n, n - first[0]) for n in left])

    def _of(self, index: int, lane: int) -> MapItem:
        more = {"index": index, "lane": lane, "item": None, "input": None, "attempt": 1}
        return self._item.model_copy(update={**more, "due": None})

    async def _wake(self, top: ShardRow, end: ItemEnd, *, single: bool) -> None:
        failures = len(top.failed) if single else top.failures
        completions = (
            len(top.done) - len(top.failed) - len(top.handed) if single else top.completions
        )
        if top.through:
            await self._report("it is through")
        elif end == "handed":
            await self._report(f"item {self._item.index} is handed over")
        elif end == "failed" and _matters(failures, self._item.fail_at):
            await self._report(f"{failures} have failed")
        elif end == "completed" and _matters(completions, self._item.enough_at):
            await self._report(f"{completions} have completed")

    async def _report(self, cause: str) -> None:
        item = self._item
        await self._ports.queue.send(
            MapReported(run_id=item.run_id, map=item.map, order=item.order, cause=cause)
        )


def _matters(count: int, wanted: int | None) -> bool:
    """Whether a run is to be woken at this count: when it has what it wants, then ever more seldom.

    Counts may be too high, so the first wake-up may find that it came too soon.
    """
    if wanted is None or count < wanted:
        return False
    more = count - wanted
    return more & (more - 1) == 0
