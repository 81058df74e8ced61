"""The values of dispatched maps in their events: they come in blocks, kept inline or as blobs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from stepwell.core.events import Event, MapEnded, MapStarted
from stepwell.core.map_outcomes import dump_inputs, dump_outcomes, load_inputs, load_outcomes
from stepwell.core.records import Payload, is_reference
from stepwell.engine.values import Values

Change = Callable[[Payload], Awaitable[Payload]]


async def whole(values: Values, event: Event) -> Event:
    """The event with all values of a map in place."""
    return await _changed(event, values.get, values.get)


async def stored(values: Values, event: Event, limit: int) -> Event:
    """The event with large values of a map kept as blobs, and blocks above a limit in bytes."""

    async def put(value: Payload) -> Payload:
        return await values.put(value, "an imported value")

    async def keep(block: Payload) -> Payload:
        return await values.keep(block, limit)

    return await _changed(event, put, keep)


async def owned(values: Values, event: Event, limit: int) -> Event:
    """The event with the values of a map as those of another run."""

    async def keep(block: Payload) -> Payload:
        return await values.keep(block, limit)

    return await _changed(await _opened(values, event), values.own, keep)


async def _opened(values: Values, event: Event) -> Event:
    """The event with its blocks in place, and the values in them as they are."""

    if isinstance(event, MapStarted) and event.inputs is not None:
        return replace(event, inputs=tuple([await values.get(each) for each in event.inputs]))
    if isinstance(event, MapEnded) and event.outcomes is not None:
        return replace(event, outcomes=tuple([await values.get(each) for each in event.outcomes]))
    return event


async def _changed(event: Event, value: Change, block: Change) -> Event:
    """The event with each value of a map changed, and then each block of them."""
    if isinstance(event, MapStarted) and event.inputs is not None:
        inputs = [await _inputs(each, value, block) for each in event.inputs]
        return replace(event, inputs=tuple(inputs))
    if isinstance(event, MapEnded) and event.outcomes is not None:
        outcomes = [await _outcomes(each, value, block) for each in event.outcomes]
        return replace(event, outcomes=tuple(outcomes))
    return event


async def _inputs(text: Payload, value: Change, block: Change) -> Payload:
    if is_reference(text):
        text = await block(text)
    found = [replace(each, input=await value(each.input)) for each in load_inputs(text)]
    return await block(dump_inputs(found))


async def _outcomes(text: Payload, value: Change, block: Change) -> Payload:
    if is_reference(text):
        text = await block(text)
    found = [
        replace(each, result=None if each.result is None else await value(each.result))
        for each in load_outcomes(text)
    ]
    return await block(dump_outcomes(found))
