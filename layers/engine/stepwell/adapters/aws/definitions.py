"""Published definitions: an item per digest, and a copy of the current one of each workflow.

The item under `current` is written last: where it stands, the others do too.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from stepwell.adapters.aws.items import DefinitionItem, RawItem, TableItem, fields, raw
from stepwell.adapters.aws.keys import (
    CURRENT,
    WORKFLOWS,
    definition_key,
    digest_key,
    workflow_key,
)
from stepwell.adapters.aws.rows import read_workflow, workflow_item
from stepwell.adapters.aws.table import Table
from stepwell.core.cursors import Place, check_limit, read_cursor, write_cursor
from stepwell.core.definitions import version_order
from stepwell.core.records import PublishedWorkflow
from stepwell.engine.ports import Page


def definition_item(definition: PublishedWorkflow, key: str) -> RawItem:
    """A definition as an item under a sort key."""
    return raw(
        DefinitionItem(
            definition_key(definition.name),
            key,
            name=definition.name,
            version=definition.version,
            version_order=version_order(definition.version),
            digest=definition.digest,
            published_at=definition.published_at,
            input_schema=definition.input_schema,
            result_schema=definition.result_schema,
            description=definition.description,
            signals=definition.signals,
        )
    )


def publish(table: Table, definition: PublishedWorkflow, current: RawItem) -> None:
    """Put a definition and its workflow's name, then make it the current one unless that is newer.

    `current` is its item as the current one. Nothing is written if it is that already.
    """
    pk = current["pk"]["S"]
    standing = table.get(pk, CURRENT, consistent=False, only=("digest",))
    if standing is not None and standing["digest"] == current["digest"]:
        return
    item = current | {"sk": {"S": digest_key(definition.digest)}}
    table.put(item, DefinitionItem.pk.does_not_exist())
    table.put(workflow_item(definition.name))
    order = version_order(definition.version)
    table.put(
        current,
        DefinitionItem.pk.does_not_exist()
        | (DefinitionItem.version_order < order)
        | (
            (DefinitionItem.version_order == order)
            & (DefinitionItem.published_at <= definition.published_at)
        ),
    )


def find(table: Table, workflow: str) -> PublishedWorkflow | None:
    """The current definition of a workflow."""
    item = table.get(definition_key(workflow), CURRENT, consistent=False)
    return _read(item) if item else None


def page(table: Table, limit: int, cursor: str | None) -> Page[PublishedWorkflow]:
    """Current definitions by name. Raises `ValueError` on a bad cursor or limit."""
    check_limit(limit)
    after = None if cursor is None else read_cursor(cursor, "definitions", 1).ids[0]
    found = _after(table, after, limit + 1)
    more = len(found) > limit
    return Page(
        items=tuple(found[:limit]),
        cursor=write_cursor("definitions", Place(0, (found[limit - 1].name,))) if more else None,
    )


def _after(table: Table, workflow: str | None, limit: int) -> list[PublishedWorkflow]:
    """At most `limit` current definitions of workflows whose keys follow a name's."""
    # A cursor may be made up: DynamoDB compares with no empty key.
    since = TableItem.sk > workflow_key(workflow) if workflow else None
    names = (read_workflow(item) for item in table.query(WORKFLOWS, since, page=limit))
    found: list[PublishedWorkflow] = []
    # Not every workflow that has had a run is published.
    while len(found) < limit and (some := list(islice(names, limit))):
        found += _current(table, some)
    return found[:limit]


def _current(table: Table, names: list[str]) -> Iterator[PublishedWorkflow]:
    items = table.get_many([(definition_key(name), CURRENT) for name in names])
    known = {item["pk"]["S"]: item for item in items}
    for name in names:
        if item := known.get(definition_key(name)):
            yield _read(item)


def _read(item: RawItem) -> PublishedWorkflow:
    values = fields(DefinitionItem.from_raw_data(item))
    del values["version_order"]
    return PublishedWorkflow(**values)
