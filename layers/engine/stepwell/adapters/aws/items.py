"""The items of the one table, as pynamodb models, and its three indexes.

Index `runs` holds each run under its workflow, by time of creation. Its keys never change, so it is
written once per run. Index `wanted` is sparse: suspended runs by the time at which a timer of
theirs is due, failed ones and those that want attention by time of creation, and pending hooks by
theirs. Index `expiring` is sparse too: ended runs that are not kept for ever, by when they may go.
All hold keys, and `wanted` the deadlines of hooks, so that a sweep over many hooks reads
few bytes; all are spread over shards. The table's TTL, `expires_at`, is in seconds
and deletes; what ends a hook is therefore named `ends_at`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pynamodb.attributes import (
    BooleanAttribute,
    ListAttribute,
    MapAttribute,
    NumberAttribute,
    TTLAttribute,
    UnicodeAttribute,
)
from pynamodb.expressions.operand import Path
from pynamodb.expressions.update import Action
from pynamodb.indexes import GlobalSecondaryIndex, IncludeProjection, KeysOnlyProjection
from pynamodb.models import Model

#: An item as DynamoDB speaks of it: `{name: {type: value}}`.
RawItem = dict[str, Any]


class RunsIndex(GlobalSecondaryIndex["TableItem"]):  # type: ignore[no-untyped-call]
    """Runs by workflow and time."""

    class Meta:
        index_name = "runs"
        projection = KeysOnlyProjection()

    listed_in = UnicodeAttribute(hash_key=True)
    created_at = NumberAttribute(range_key=True)


class WantedIndex(GlobalSecondaryIndex["TableItem"]):  # type: ignore[no-untyped-call]
    """Runs with a timer, that have failed or want attention, by which of it; pending hooks."""

    class Meta:
        index_name = "wanted"
        projection = IncludeProjection(["ends_at"])

    wanted_in = UnicodeAttribute(hash_key=True)
    wanted_at = NumberAttribute(range_key=True)


class ExpiringIndex(GlobalSecondaryIndex["TableItem"]):  # type: ignore[no-untyped-call]
    """Ended runs that are not kept for ever, by when they may go."""

    class Meta:
        index_name = "expiring"
        projection = KeysOnlyProjection()

    expires_in = UnicodeAttribute(hash_key=True)
    kept_until = NumberAttribute(range_key=True)


class TableItem(Model):
    """What all items have, and the schema of the table."""

    pk = UnicodeAttribute(hash_key=True)
    sk = UnicodeAttribute(range_key=True)
    listed_in = UnicodeAttribute(null=True)
    wanted_in = UnicodeAttribute(null=True)
    wanted_at = NumberAttribute(null=True)
    expires_in = UnicodeAttribute(null=True)
    kept_until = NumberAttribute(null=True)
    created_at = NumberAttribute(null=True)
    expires_at = TTLAttribute(null=True)
    runs = RunsIndex()
    wanted = WantedIndex()
    expiring = ExpiringIndex()


class RunItem(TableItem):
    """A run header."""

    run_id = UnicodeAttribute()
    workflow = UnicodeAttribute()
    version = UnicodeAttribute()
    status = UnicodeAttribute()
    input = UnicodeAttribute()
    input_digest = UnicodeAttribute()
    seed = UnicodeAttribute()
    updated_at = NumberAttribute()
    last_event = NumberAttribute()
    result = UnicodeAttribute(null=True)
    error: MapAttribute[str, Any] = MapAttribute(null=True)  # type: ignore[no-untyped-call]
    waiting: ListAttribute[Any] = ListAttribute(null=True)
    waits_not_shown = NumberAttribute(null=True)
    attention: MapAttribute[str, Any] = MapAttribute(null=True)  # type: ignore[no-untyped-call]
    cancel_requested = BooleanAttribute(null=True)
    idempotency_key = UnicodeAttribute(null=True)
    tags: ListAttribute[Any] = ListAttribute(null=True)
    attributes = UnicodeAttribute(null=True)
    context = UnicodeAttribute(null=True)
    deleted_at = NumberAttribute(null=True)
    retry: MapAttribute[str, Any] = MapAttribute(null=True)  # type: ignore[no-untyped-call]
    forked_from: MapAttribute[str, Any] = MapAttribute(null=True)  # type: ignore[no-untyped-call]
    guards: MapAttribute[str, Any] = MapAttribute(null=True)  # type: ignore[no-untyped-call]
    parent: MapAttribute[str, Any] = MapAttribute(null=True)  # type: ignore[no-untyped-call]
    continued_from = UnicodeAttribute(null=True)
    continued_to = UnicodeAttribute(null=True)
    stream_run = UnicodeAttribute(null=True)
    snapshot = NumberAttribute(null=True)
    subscription: MapAttribute[str, Any] = MapAttribute(null=True)  # type: ignore[no-untyped-call]


class CommitItem(TableItem):
    """Consecutive events, as JSON; the number of the first is in the key."""

    turn = UnicodeAttribute()
    number = NumberAttribute()
    events = UnicodeAttribute()


class HookItem(TableItem):
    """A hook. In index `wanted` while it is pending."""

    run_id = UnicodeAttribute()
    hook_id = UnicodeAttribute()
    name = UnicodeAttribute()
    step = UnicodeAttribute(null=True)
    key_id = UnicodeAttribute()
    ends_at = NumberAttribute(null=True)
    due_at = NumberAttribute(null=True)
    schema = UnicodeAttribute(null=True)
    status = UnicodeAttribute()
    decision_id = UnicodeAttribute(null=True)
    payload = UnicodeAttribute(null=True)
    decided_at = NumberAttribute(null=True)
    actor = UnicodeAttribute(null=True)
    question = UnicodeAttribute(null=True)


class InboxItem(TableItem):
    """An entry of a run's inbox."""

    entry_id = UnicodeAttribute()
    key = UnicodeAttribute()
    payload = UnicodeAttribute()
    sent_at = NumberAttribute()
    actor = UnicodeAttribute(null=True)


class StepItem(TableItem):
    """A dispatched step."""

    step = UnicodeAttribute()
    revision = NumberAttribute()
    order = NumberAttribute()
    claim = UnicodeAttribute(null=True)
    until = NumberAttribute()
    cancelled = BooleanAttribute(null=True)
    outcome = UnicodeAttribute(null=True)


class CheckpointItem(TableItem):
    """The last checkpoint of a step."""

    step = UnicodeAttribute()
    last_event = NumberAttribute()
    save_id = UnicodeAttribute()
    saved_at = NumberAttribute()
    output = NumberAttribute()
    answers: ListAttribute[Any] = ListAttribute()
    value = UnicodeAttribute()


class ChunkItem(TableItem):
    """One row of a step's output; its position is in the key."""

    step = UnicodeAttribute()
    position = NumberAttribute()
    number = NumberAttribute()
    at = NumberAttribute()
    value = UnicodeAttribute(null=True)
    last_event = NumberAttribute()


class WorkflowItem(TableItem):
    """The name of a workflow that has had a run: what a list of all runs goes through."""

    workflow = UnicodeAttribute()


class DefinitionItem(TableItem):
    """A published definition. `version_order` is what the current one is compared by."""

    name = UnicodeAttribute()
    version = UnicodeAttribute()
    version_order = UnicodeAttribute()
    digest = UnicodeAttribute()
    published_at = NumberAttribute()
    input_schema = UnicodeAttribute()
    result_schema = UnicodeAttribute(null=True)
    description = UnicodeAttribute()
    signals = UnicodeAttribute(null=True)


def raw(item: TableItem) -> RawItem:
    """The item as it is sent."""
    return item.serialize()


def fields(item: TableItem) -> dict[str, Any]:
    """The attributes of an item as plain values, without its keys."""
    return {
        name: _plain(value)
        for name, value in item.attribute_values.items()
        if name not in _KEYS and value is not None
    }


def replacing(item: RawItem, names: Sequence[str]) -> list[Action]:
    """What makes these attributes of a row what they are in the item, or removes them."""
    return [
        Path([name]).set(item[name]) if name in item else Path([name]).remove() for name in names
    ]


def item_size(item: RawItem) -> int:
    """Bytes that an item takes by DynamoDB's rules: names and values."""
    return sum(len(name.encode()) + _value_size(value) for name, value in item.items())


_KEYS = ("pk", "sk", "listed_in", "wanted_in", "wanted_at", "expires_in", "expires_at")


def _plain(value: Any) -> Any:
    if isinstance(value, MapAttribute):
        return _plain(value.attribute_values)
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    return value


def _value_size(value: Mapping[str, Any]) -> int:
    ((kind, content),) = value.items()
    if kind == "S":
        return len(str(content).encode())
    if kind == "N":
        digits = len(str(content).lstrip("-").rstrip("0"))
        return (digits + 1) // 2 + 1 + str(content).startswith("-")
    if kind == "M":
        return 3 + sum(
            1 + len(name.encode()) + _value_size(inner) for name, inner in content.items()
        )
    if kind == "L":
        return 3 + sum(1 + _value_size(inner) for inner in content)
    return 1
