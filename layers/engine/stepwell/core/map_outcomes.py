"""What the items of a dispatched map came to, as the run records it: packed into blocks of JSON.

A map's end names its blocks, each of so many items in the order of the input. Results in them are
values as everywhere: JSON text, or the reference of a blob.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from stepwell.core.events import FailureReason
from stepwell.core.fan_out import ItemStatus
from stepwell.core.records import Payload, is_reference
from stepwell.errors import Failure

#: Items of one block.
BLOCK = 128


@dataclass(frozen=True, slots=True)
class ItemEnded:
    """What one item came to. `item` is its index or key."""

    item: str
    status: ItemStatus
    attempt: int = 1
    result: Payload | None = None
    error: Failure | None = None
    reason: FailureReason = "error"


def dump_outcomes(outcomes: Iterable[ItemEnded]) -> str:
    """One block."""
    return json.dumps([_packed(each) for each in outcomes], separators=(",", ":"))


def load_outcomes(block: str) -> list[ItemEnded]:
    """The items of a block."""
    return [_unpacked(*each) for each in json.loads(block)]


def references_in(block: str) -> list[Payload]:
    """The results of a block that are kept as blobs; of one that is itself away, none are known."""
    if is_reference(block):
        return []
    results = (each.result for each in load_outcomes(block))
    return [result for result in results if result is not None and is_reference(result)]


def with_results(block: str, texts: Mapping[Payload, str]) -> str:
    """A block with results in place of their references, where they are known."""
    if is_reference(block):
        return block
    ended = load_outcomes(block)
    return dump_outcomes(
        replace(each, result=each.result and texts.get(each.result, each.result)) for each in ended
    )


def _packed(ended: ItemEnded) -> list[Any]:
    if ended.status == "completed":
        return [ended.item, ended.result]
    if ended.error is None:
        return [ended.item]
    return [ended.item, None, ended.attempt, ended.reason, asdict(ended.error)]


def _unpacked(
    item: str,
    result: Payload | None = None,
    attempt: int = 1,
    reason: FailureReason = "error",
    error: dict[str, Any] | None = None,
) -> ItemEnded:
    if result is not None:
        return ItemEnded(item, "completed", attempt, result)
    if error is None:
        return ItemEnded(item, "cancelled")
    return ItemEnded(item, "failed", attempt, None, _failure(error), reason)


def _failure(error: dict[str, Any] | None) -> Failure:
    assert error is not None
    cause = error["cause"]
    return Failure(
        error["type"], error["message"], error["traceback"], _failure(cause) if cause else None
    )


@dataclass(frozen=True, slots=True)
class ItemInput:
    """The input of one item. `item` is its index or key."""

    item: str
    input: Payload


def dump_inputs(inputs: Sequence[ItemInput]) -> str:
    """The inputs of one shard."""
    return json.dumps([[each.item, each.input] for each in inputs], separators=(",", ":"))


def load_inputs(block: str) -> list[ItemInput]:
    """The inputs of a shard."""
    return [ItemInput(item, value) for item, value in json.loads(block)]
