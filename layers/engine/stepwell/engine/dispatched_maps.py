"""Dispatched maps, from the side of turns: begin them, take in what they came to, end them.

`MapStarted` with the inputs of all items is durable before their messages leave. What the items
come to stands in rows of their own, which a turn reads when the row at the top says that something
the run waits for is there; then it records the end of the map, with all outcomes, in one event.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from stepwell.core import events as e
from stepwell.core.commands import StartMap
from stepwell.core.decide import decided_event
from stepwell.core.failure import describe
from stepwell.core.fan_out import MapOptions
from stepwell.core.ids import item_id
from stepwell.core.map_layout import Layout
from stepwell.core.map_outcomes import (
    BLOCK,
    ItemEnded,
    ItemInput,
    dump_inputs,
    dump_outcomes,
    load_inputs,
)
from stepwell.core.map_rows import ItemRow, ShardKey, ShardRow, top_of
from stepwell.core.messages import MapItem
from stepwell.core.parts import MapState, StepState
from stepwell.core.records import UNHEARD, Payload
from stepwell.engine.dispatch import all_of
from stepwell.engine.turn_context import TurnContext
from stepwell.errors import PayloadError

#: Requests at a time.
_AT_A_TIME = 16
#: Bytes that the inputs of a shard may take in its row, which is written at every outcome.
_IN_ROW = 256


def layout_of(known: MapState) -> Layout:
    """How the items of a map are laid out."""
    return Layout(known.total, known.started.concurrency)


def options_of(started: e.MapStarted) -> MapOptions:
    """What a map was told, as its event says."""
    return MapOptions(
        on_error=started.on_error,
        min_successful=started.min_successful,
        tolerated_failures=started.tolerated_failures,
    )


async def begin(turn: TurnContext, command: StartMap) -> list[e.Event]:
    """The events that a map begins with: its start; and its end, if an item cannot be carried."""
    assert command.dispatched is not None
    items, options = command.dispatched, command.dispatched.options
    start = e.MapStarted(
        at=turn.journal.now(),
        map=command.id,
        name=command.name,
        total=command.total,
        digest=items.digest,
        inputs=(),
        concurrency=command.max_concurrency,
        on_error=options.on_error,
        min_successful=options.min_successful,
        tolerated_failures=options.tolerated_failures,
        options=items.step.overrides,
        context=None if items.context is None else items.context.text,
    )
    layout = Layout(command.total, command.max_concurrency)
    try:
        blocks = [await _block(turn, command, layout, n) for n in range(layout.shards)]
    except _Uncarried as error:
        return [start, await _failed_at_once(turn, command, error)]
    return [replace(start, inputs=tuple(blocks))]


class _Uncarried(Exception):
    def __init__(self, index: int, error: PayloadError) -> None:
        super().__init__(str(error))
        self.index = index
        self.error = error


async def _block(turn: TurnContext, command: StartMap, layout: Layout, shard: int) -> Payload:
    assert command.dispatched is not None
    items, inputs = command.dispatched, []
    owner = f"input of step {command.name!r}"
    for index in layout.items(shard):
        try:
            text = items.input(index)
            value = await turn.values.put(text, owner)
        except PayloadError as error:
            raise _Uncarried(index, error) from error
        inputs.append(ItemInput(items.names[index], value))
    limit = _IN_ROW if layout.lanes(shard) else turn.settings.sizes.inline_limit // layout.shards
    return await turn.values.keep(dump_inputs(inputs), limit)


async def _failed_at_once(
    turn: TurnContext, command: StartMap, uncarried: _Uncarried
) -> e.MapEnded:
    assert command.dispatched is not None
    ended = [ItemEnded(name, "cancelled") for name in command.dispatched.names]
    ended[uncarried.index] = replace(
        ended[uncarried.index], status="failed", error=describe(uncarried.error)
    )
    blocks = await _blocks(turn, ended)
    return e.MapEnded(
        at=turn.journal.now(), map=command.id, name=command.name, outcomes=tuple(blocks)
    )


def perhaps_lost(turn: TurnContext, known: MapState) -> bool:
    """Whether messages of a map may never have been sent: the turn that began it did not end."""
    return turn.header.last_event < known.order


async def unheard(turn: TurnContext, known: MapState) -> bool:
    """Whether nothing was heard of a map for so long that its messages must be gone."""
    if turn.settled:
        return False
    touched = [row.touched for row in await _shards(turn, known) if not row.through]
    return bool(touched) and max(touched) + UNHEARD <= turn.ports.clock.now()


async def send(turn: TurnContext, known: MapState) -> None:
    """Make sure of a map's rows, and send the messages of its items that have no outcome yet."""
    layout = layout_of(known)
    top = top_of(turn.run_id, known.id, known.order, layout)
    if layout.shards > 1:
        await turn.ports.maps.put_shard(
            ShardRow(key=top, members=layout.shards, touched=turn.ports.clock.now())
        )
    gate = asyncio.Semaphore(_AT_A_TIME)

    async def one(shard: int) -> ShardRow:
        async with gate:
            return await turn.ports.maps.put_shard(_row(turn, known, layout, shard))

    rows = await asyncio.gather(*(one(shard) for shard in range(layout.shards)))
    for row in rows:
        before = row.key.shard - layout.groups
        begun = layout.concurrency is None or before < 0 or rows[before].through
        if begun and not row.through:
            await _send_shard(turn, known, layout, row)


def _row(turn: TurnContext, known: MapState, layout: Layout, shard: int) -> ShardRow:
    assert known.started.inputs is not None
    items, lanes = layout.items(shard), layout.lanes(shard)
    row = ShardRow(
        key=ShardKey(turn.run_id, known.id, known.order, shard),
        members=len(items),
        touched=turn.ports.clock.now(),
    )
    if not lanes:
        return row
    first = tuple(items[:lanes])
    inputs = known.started.inputs[shard]
    return replace(row, lanes=first, following=items.start + lanes, end=items.stop, inputs=inputs)


async def _send_shard(turn: TurnContext, known: MapState, layout: Layout, row: ShardRow) -> None:
    template = _template(turn, known)
    if row.lanes:
        held = [(lane, n) for lane, n in enumerate(row.lanes) if n < row.end and n not in row.done]
        items = [template.model_copy(update={"index": n, "lane": lane}) for lane, n in held]
    else:
        assert known.started.inputs is not None
        inputs = load_inputs(await turn.values.get(known.started.inputs[row.key.shard]))
        items = [
            template.model_copy(update={"index": index, "item": found.item, "input": found.input})
            for index, found in zip(layout.items(row.key.shard), inputs, strict=True)
            if index not in row.done
        ]
    await turn.ports.steps.send_items(items)


def _template(turn: TurnContext, known: MapState) -> MapItem:
    started, options = known.started, options_of(known.started)
    fail_at = [] if options.collects else [1]
    if options.tolerated_failures is not None:
        fail_at.append(options.tolerated_failures + 1)
    if options.min_successful is not None:
        fail_at.append(known.total - options.min_successful + 1)
    return MapItem(
        run_id=turn.run_id,
        map=known.id,
        order=known.order,
        name=known.name,
        total=known.total,
        index=0,
        concurrency=started.concurrency,
        fail_at=min(fail_at, default=None),
        enough_at=options.min_successful,
        options=started.options,
        context=started.context,
        workflow=turn.header.workflow,
        guards=turn.state.guards,
        inbox=bool(turn.state.inbox),
        retried=turn.state.lives.retried > 0,
        stream_run=turn.header.stream_run,
    )


async def take_in(turn: TurnContext, log: Sequence[e.Event]) -> list[e.Event]:
    """Record what the rows of maps say and the log does not: items handed over, and ends."""
    found: list[e.Event] = []
    for known in list(turn.state.maps.values()):
        if known.status == "started" and known.dispatched:
            found += await _take_in(turn, known, [*log, *found])
    return found


async def _take_in(turn: TurnContext, known: MapState, log: Sequence[e.Event]) -> list[e.Event]:
    layout, options = layout_of(known), options_of(known.started)
    top = await turn.ports.maps.get_shard(top_of(turn.run_id, known.id, known.order, layout))
    if top is None or not _worth_reading(turn, known, layout, options, top):
        return []
    rows = [top] if layout.shards == 1 else await _shards(turn, known)
    adopted = [event for row in rows for event in await _adopt(turn, row)]
    own = handed_over(turn, known)
    done, failed, handed = (
        sum(len(each) for each in sets)
        for sets in zip(*((row.done, row.failed, row.handed) for row in rows), strict=True)
    )
    completed = done - failed - handed + sum(step.status == "completed" for step in own)
    failed += sum(step.status == "failed" for step in own)
    if options.verdict(known.total, completed, failed) is None:
        return adopted
    event = await _ended(turn, known, layout, [*log, *adopted])
    turn.journal.record(event)
    return [*adopted, event]


def _worth_reading(
    turn: TurnContext, known: MapState, layout: Layout, options: MapOptions, top: ShardRow
) -> bool:
    """Whether the rows of shards may say something that the log does not. `top` counts too high."""
    own = handed_over(turn, known)
    single = layout.shards == 1
    if top.through or (len(top.handed) if single else top.hand_overs) > len(own):
        return True
    failed = sum(step.status == "failed" for step in own)
    completed = sum(step.status == "completed" for step in own)
    if single:
        failed += len(top.failed)
        completed += len(top.done) - len(top.failed) - len(top.handed)
    else:
        failed += top.failures
        completed += top.completions
    # What is counted too high may seem too many in all: neither verdict may be missed for it.
    return (
        options.verdict(known.total, completed, 0) is not None
        or options.verdict(known.total, 0, min(failed, known.total)) is not None
    )


def handed_over(turn: TurnContext, known: MapState) -> list[StepState]:
    """Items of a map that its run has taken over."""
    prefix = item_id(known.id, "")
    return [step for step in turn.state.steps.values() if step.id.startswith(prefix)]


async def _shards(turn: TurnContext, known: MapState) -> list[ShardRow]:
    layout = layout_of(known)
    gate = asyncio.Semaphore(_AT_A_TIME)

    async def one(shard: int) -> ShardRow | None:
        async with gate:
            key = ShardKey(turn.run_id, known.id, known.order, shard)
            return await turn.ports.maps.get_shard(key)

    found = await asyncio.gather(*(one(shard) for shard in range(layout.shards)))
    return [row for row in found if row is not None]


async def _adopt(turn: TurnContext, shard: ShardRow) -> list[e.Event]:
    """Record the items of a shard that were handed over, as dispatched steps that wait."""
    found: list[e.Event] = []
    for index in sorted(shard.handed):
        row = await turn.ports.maps.get_item(shard.key, index)
        assert row is not None
        assert row.events is not None
        events = e.load_events(row.events)
        step = getattr(events[0], "step", "")
        if step in turn.state.steps:
            continue
        for event in events:
            hook = turn.state.hooks.get(getattr(event, "hook", ""))
            if hook is None or (hook.open and not isinstance(event, e.HookOpened)):
                _record(turn, event, found)
        for hook_row in turn.rows.values():
            # Decided before the log knew of the step that waits for it.
            decided = decided_event(turn.state, hook_row, turn.journal.now())
            if hook_row.step == step and decided is not None:
                _record(turn, decided, found)
    return found


def _record(turn: TurnContext, event: e.Event, found: list[e.Event]) -> None:
    event = replace(event, at=turn.journal.now())
    turn.journal.record(event)
    found.append(event)


async def _ended(
    turn: TurnContext,
    known: MapState,
    layout: Layout,
    log: Iterable[e.Event],
) -> e.MapEnded:
    prefix = item_id(known.id, "")
    ends = {
        event.step.removeprefix(prefix): event
        for event in log
        if isinstance(event, e.StepCompleted | e.StepFailed) and event.step.startswith(prefix)
    }
    ended: list[ItemEnded] = []
    for shard in range(layout.shards):
        ended += await _ends_of_shard(turn, known, layout, shard, ends)
    left = any(each.status == "cancelled" for each in ended)
    return e.MapEnded(
        at=turn.journal.now(),
        map=known.id,
        name=known.name,
        outcomes=tuple(await _blocks(turn, ended)),
        left=left or None,
    )


async def _ends_of_shard(
    turn: TurnContext,
    known: MapState,
    layout: Layout,
    shard: int,
    ends: dict[str, e.StepCompleted | e.StepFailed],
) -> list[ItemEnded]:
    assert known.started.inputs is not None
    inputs = load_inputs(await turn.values.get(known.started.inputs[shard]))
    key = ShardKey(turn.run_id, known.id, known.order, shard)
    rows = {row.index: row for row in await turn.ports.maps.get_items(key)}
    return [
        _item_ended(found.item, rows.get(index), ends.get(found.item))
        for index, found in zip(layout.items(shard), inputs, strict=True)
    ]


def _item_ended(
    item: str, row: ItemRow | None, event: e.StepCompleted | e.StepFailed | None
) -> ItemEnded:
    if isinstance(event, e.StepCompleted):
        return ItemEnded(item, "completed", event.attempt, event.result)
    if isinstance(event, e.StepFailed):
        return ItemEnded(item, "failed", event.attempt, None, event.error, event.reason)
    if row is None or row.status not in ("completed", "failed"):
        return ItemEnded(item, "cancelled")
    if row.status == "completed":
        return ItemEnded(item, "completed", row.attempt, row.result)
    reason: e.FailureReason = row.reason or "error"  # type: ignore[assignment]  # as it was put
    return ItemEnded(item, "failed", row.attempt, None, row.error, reason)


async def _blocks(turn: TurnContext, ended: Sequence[ItemEnded]) -> list[Payload]:
    parts = [ended[start : start + BLOCK] for start in range(0, len(ended), BLOCK)]
    limit = turn.settings.sizes.inline_limit // max(len(parts), 1)
    return [await turn.values.keep(dump_outcomes(part), limit) for part in parts]


def called_off(turn: TurnContext) -> Iterator[MapState]:
    """Maps that ended while items of them could still be made, and whose makers may not know."""
    for known in turn.state.maps.values():
        if (
            known.dispatched
            and known.left
            and (known.left > turn.journal.loaded or not turn.settled)
        ):
            yield known


async def call_off(turn: TurnContext, maps: Iterable[MapState]) -> None:
    """Tell those who make items that nobody waits any more. See `dispatch.call_off`."""
    keys = [
        ShardKey(turn.run_id, known.id, known.order, shard)
        for known in maps
        for shard in range(layout_of(known).shards)
    ]
    if not keys:
        return
    await turn.journal.flush()
    gate = asyncio.Semaphore(_AT_A_TIME)

    async def cancel(key: ShardKey) -> None:
        async with gate:
            await turn.ports.maps.cancel_shard(key)

    await all_of(cancel(key) for key in keys)
    rows = await turn.ports.store.load(turn.run_id)
    turn.take_rows(rows.hooks)
