"""Rows as items of the table, and back."""

from __future__ import annotations

from functools import cache
from typing import Any

from pydantic import TypeAdapter

from stepwell.adapters.aws.items import (
    CheckpointItem,
    ChunkItem,
    CommitItem,
    HookItem,
    InboxItem,
    RawItem,
    RunItem,
    StepItem,
    WorkflowItem,
    fields,
    raw,
)
from stepwell.adapters.aws.keys import (
    HEADER,
    WORKFLOWS,
    checkpoint_key,
    chunk_key,
    commit_first,
    commit_key,
    hook_key,
    inbox_key,
    run_key,
    shard_key,
    shard_of,
    step_key,
    workflow_key,
)
from stepwell.core.events import Commit, dump_events, load_events
from stepwell.core.records import (
    Checkpoint,
    Chunk,
    HookRow,
    HookStatus,
    InboxRow,
    Millis,
    RunHeader,
    RunStatus,
    StepRow,
)

#: The group of ended runs in index `expiring`.
EXPIRING = "ENDED"
#: The group of pending hooks in index `wanted`.
PENDING_HOOKS = "HOOK"
#: The group of suspended runs that something other than a hook wakes, by `RunHeader.due`.
TIMED = RunStatus.SUSPENDED.value
#: The groups of failed runs in index `wanted`: a note on the header goes before its status.
FAILED_GROUPS = ("BLOCKED", "STUCK", RunStatus.FAILED.value)

_HEADER: TypeAdapter[RunHeader] = TypeAdapter(RunHeader)


@cache
def _checkpoint() -> TypeAdapter[Checkpoint]:
    return TypeAdapter(Checkpoint)


@cache
def _step() -> TypeAdapter[StepRow]:
    return TypeAdapter(StepRow)


def header_item(header: RunHeader) -> RawItem:
    """A header as an item. What is as by default, is left out."""
    values = _HEADER.dump_python(header, mode="json", exclude_defaults=True)
    values["last_event"] = header.last_event
    shard = shard_of(header.run_id)
    group, time = _wanted(header)
    return raw(
        RunItem(
            run_key(header.run_id),
            HEADER,
            listed_in=shard_key(header.workflow, shard),
            wanted_in=None if group is None else shard_key(group, shard),
            wanted_at=time,
            expires_in=None if header.kept_until is None else shard_key(EXPIRING, shard),
            **values,
        )
    )


def buried_item(tombstone: RunHeader) -> RawItem:
    """What is left of a deleted run as an item, in no index; it goes by itself when it may."""
    item = header_item(tombstone)
    for name in ("listed_in", "wanted_in", "wanted_at", "expires_in"):
        item.pop(name, None)
    kept = tombstone.kept_until
    return item if kept is None else {**item, "expires_at": seconds(kept)}


def emptied_commit(key: str, run_id: str, until: Millis) -> RawItem:
    """What stands in the place of a deleted run's commit."""
    item = raw(CommitItem(run_key(run_id), key, turn="", number=0, events="[]"))
    return {**item, "expires_at": seconds(until)}


def seconds(at: Millis) -> RawItem:
    """A time as TTL wants it: never earlier."""
    return {"N": str(-(-at // 1000))}


def read_header(item: RawItem) -> RunHeader:
    """The header that an item holds."""
    return _HEADER.validate_python(fields(RunItem.from_raw_data(item)))


def commit_item(run_id: str, commit: Commit) -> RawItem:
    """A commit as an item."""
    return raw(
        CommitItem(
            run_key(run_id),
            commit_key(commit.first),
            turn=commit.turn,
            number=commit.number,
            events=dump_events(commit.events).decode(),
        )
    )


def read_commit(item: RawItem) -> Commit:
    """The commit that an item holds."""
    found = CommitItem.from_raw_data(item)
    return Commit(
        first=commit_first(found.sk),
        turn=found.turn,
        number=int(found.number),
        events=load_events(found.events),
    )


def hook_item(row: HookRow) -> RawItem:
    """A hook as an item."""
    pending = row.status is HookStatus.PENDING
    return raw(
        HookItem(
            run_key(row.run_id),
            hook_key(row.hook_id),
            wanted_in=shard_key(PENDING_HOOKS, shard_of(row.run_id)) if pending else None,
            wanted_at=row.created_at if pending else None,
            run_id=row.run_id,
            hook_id=row.hook_id,
            name=row.name,
            step=row.step,
            key_id=row.key_id,
            created_at=row.created_at,
            ends_at=row.expires_at,
            due_at=row.due_at,
            schema=row.schema,
            status=row.status.value,
            decision_id=row.decision_id,
            payload=row.payload,
            decided_at=row.decided_at,
            actor=row.actor,
            question=row.question,
        )
    )


def read_hook(item: RawItem) -> HookRow:
    """The hook that an item holds."""
    values = fields(HookItem.from_raw_data(item))
    return HookRow(
        step=values.pop("step", None),
        expires_at=values.pop("ends_at", None),
        status=HookStatus(values.pop("status")),
        **values,
    )


def inbox_item(row: InboxRow) -> RawItem:
    """An entry of an inbox as an item."""
    return raw(
        InboxItem(
            run_key(row.run_id),
            inbox_key(row.entry_id),
            entry_id=row.entry_id,
            key=row.key,
            payload=row.payload,
            sent_at=row.sent_at,
            actor=row.actor,
        )
    )


def read_inbox(run_id: str, item: RawItem) -> InboxRow:
    """The entry of an inbox that an item holds."""
    return InboxRow(run_id=run_id, **fields(InboxItem.from_raw_data(item)))


def step_item(row: StepRow) -> RawItem:
    """A dispatched step as an item."""
    return raw(
        StepItem(
            run_key(row.run_id),
            step_key(row.step),
            step=row.step,
            revision=row.revision,
            order=row.order,
            claim=row.claim,
            until=row.until,
            cancelled=row.cancelled or None,
            outcome=row.outcome,
        )
    )


def read_step(run_id: str, item: RawItem) -> StepRow:
    """The dispatched step that an item holds."""
    values = fields(StepItem.from_raw_data(item))
    return _step().validate_python({"run_id": run_id, **values})


def checkpoint_item(checkpoint: Checkpoint) -> RawItem:
    """A checkpoint as an item."""
    return raw(
        CheckpointItem(
            run_key(checkpoint.run_id),
            checkpoint_key(checkpoint.step),
            step=checkpoint.step,
            last_event=checkpoint.last_event,
            save_id=checkpoint.save_id,
            saved_at=checkpoint.saved_at,
            output=checkpoint.output,
            answers=list(checkpoint.answers),
            value=checkpoint.value,
        )
    )


def read_checkpoint(run_id: str, item: RawItem) -> Checkpoint:
    """The checkpoint that an item holds."""
    values = fields(CheckpointItem.from_raw_data(item))
    return _checkpoint().validate_python({"run_id": run_id, **values})


def chunk_item(chunk: Chunk) -> RawItem:
    """An output row as an item."""
    return raw(
        ChunkItem(
            run_key(chunk.run_id),
            chunk_key(chunk.step, chunk.position),
            step=chunk.step,
            position=chunk.position,
            number=chunk.number,
            at=chunk.at,
            value=chunk.value,
            last_event=chunk.last_event,
        )
    )


def read_chunk(run_id: str, item: RawItem) -> Chunk:
    """The output row that an item holds."""
    values: dict[str, Any] = {"value": None} | fields(ChunkItem.from_raw_data(item))
    return Chunk(run_id=run_id, **values)


def workflow_item(workflow: str) -> RawItem:
    """The name of a workflow as an item."""
    return raw(WorkflowItem(WORKFLOWS, workflow_key(workflow), workflow=workflow))


def read_workflow(item: RawItem) -> str:
    """The name that an item holds."""
    return WorkflowItem.from_raw_data(item).workflow


def _wanted(header: RunHeader) -> tuple[str | None, Millis | None]:
    """The group of index `wanted` that the run is in, and by which time."""
    if header.attention is not None:
        return header.attention.kind, header.created_at
    if header.status is RunStatus.FAILED:
        return header.status.value, header.created_at
    due = header.due
    return (None, None) if due is None else (TIMED, due)
