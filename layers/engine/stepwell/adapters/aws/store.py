"""The store in DynamoDB. No transactions: each write is one item with its condition.

A request may be done although its reply is lost, and botocore then repeats it. So whoever finds a
condition failed reads what stands, consistently, and recognises a write of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

from botocore.exceptions import ClientError
from pynamodb.expressions.condition import Condition
from pynamodb.expressions.operand import Path

from stepwell.adapters.aws import definitions, lists, loading
from stepwell.adapters.aws.clients import Clients, error_code
from stepwell.adapters.aws.items import (
    CheckpointItem,
    HookItem,
    InboxItem,
    RawItem,
    RunItem,
    StepItem,
    item_size,
    replacing,
)
from stepwell.adapters.aws.keys import (
    CURRENT,
    HEADER,
    checkpoint_key,
    chunk_key,
    hook_key,
    last_chunk_key,
    map_key,
    run_key,
    step_key,
)
from stepwell.adapters.aws.rows import (
    buried_item,
    checkpoint_item,
    chunk_item,
    commit_item,
    emptied_commit,
    header_item,
    hook_item,
    inbox_item,
    read_checkpoint,
    read_chunk,
    read_header,
    read_hook,
    read_inbox,
    read_step,
    step_item,
    workflow_item,
)
from stepwell.adapters.aws.table import Table
from stepwell.core.events import Commit
from stepwell.core.map_rows import ShardKey
from stepwell.core.records import (
    AttentionKind,
    Checkpoint,
    Chunk,
    Decision,
    HookRow,
    HookStatus,
    InboxRow,
    Millis,
    PublishedWorkflow,
    RunHeader,
    RunStatus,
    StepRow,
)
from stepwell.engine.ports import ItemTooLarge, Page, RunRows, TransientError

_ITEM_LIMIT = 400 * 1024
# The keys of index `runs` never change, and the flag is only ever set.
_KEPT = {"pk", "sk", "listed_in", "workflow", "created_at", "expires_at", "cancel_requested"}
_NOT_HEADER = RunItem.sk > HEADER
_REPLACED = [name for name in RunItem.get_attributes() if name not in _KEPT]


class DynamoStore:
    """Implements the `Store` port on one table."""

    def __init__(self, table: Table, clients: Clients) -> None:
        self._table = table
        self._clients = clients
        self._known_workflows: set[str] = set()

    async def load(self, run_id: str) -> RunRows:
        """Header, log in order, hooks, steps and inbox of a run: one query, every page of it.

        Of a subscription two queries, and the log from its snapshot on.
        """
        return await self._clients.call(loading.load, self._table, run_id)

    async def get_header(self, run_id: str) -> RunHeader | None:
        """The header alone."""
        return await self._clients.call(self._header, run_id)

    async def put_header(self, header: RunHeader) -> RunHeader:
        """Put if absent. Returns the header that stands: this one, or the one already there.

        The name of its workflow is put first, unless this process knows that it is there.
        """
        return await self._clients.call(self._put_header, header)

    async def update_header(
        self, header: RunHeader, *, over: RunHeader | None = None, reopens: bool = False
    ) -> bool:
        """Replace, only if one is there whose `last_event` is not higher. Whether it was done.

        With `over`, the header as it was read, also only if the note that stands is still the one
        on it. A `cancel_requested` flag that stands is kept, unless this `reopens` the run; so are
        workflow and time of creation.
        """
        return await self._clients.call(self._update_header, header, over, reopens)

    async def bury(self, tombstone: RunHeader) -> bool:
        """Replace a header by what is left of a deleted run. Whether it stands."""
        return await self._clients.call(
            self._table.put,
            buried_item(tombstone),
            RunItem.last_event <= tombstone.last_event,
        )

    async def erase(self, run_id: str, until: Millis, shards: Sequence[ShardKey] = ()) -> None:
        """Delete all rows of a run but its header, and of these shards; empty its commits."""
        partitions = [map_key(shard) for shard in shards]
        await self._clients.call(self._erase, run_id, until, partitions)

    async def expired_runs(self, before: Millis, limit: int) -> tuple[RunHeader, ...]:
        """Runs whose `kept_until` was before a time, the longest expired first. May lag."""
        return await self._clients.call(lists.expired_runs, self._table, before, limit)

    async def request_cancel(self, run_id: str) -> bool:
        """Set `cancel_requested` on an existing header. Whether there is one."""
        return await self._clients.call(
            self._table.update,
            run_key(run_id),
            HEADER,
            [RunItem.cancel_requested.set(True)],
            RunItem.pk.exists(),
        )

    async def append(self, run_id: str, commit: Commit) -> bool:
        """Put the commit, only if no item has its first number. Whether it stands.

        True also when the item there has the same `turn` and `number`: an own write whose reply
        was lost. A commit without events is a `ValueError`: it would take the next one's number.
        """
        if not commit.events:
            raise ValueError(f"commit {commit.first} of run {run_id!r} has no events")
        return await self._clients.call(self._append, run_id, commit)

    async def trim(
        self, run_id: str, before: int, hooks: Sequence[str] = (), steps: Sequence[str] = ()
    ) -> None:
        """Delete the commits of a run whose first number is below one, and rows by id."""
        await self._clients.call(loading.trim, self._table, run_id, before, hooks, steps)

    async def get_hook(self, run_id: str, hook_id: str) -> HookRow | None:
        """One hook row."""
        return await self._clients.call(self._hook, run_id, hook_id)

    async def put_hook(self, row: HookRow) -> HookRow:
        """Put if absent. Returns the row that stands: this one, or the one already there."""
        return await self._clients.call(self._put_hook, row)

    async def decide_hook(self, run_id: str, hook_id: str, decision: Decision) -> HookRow | None:
        """Decide a PENDING row. Returns the row that stands, None if there is none."""
        return await self._clients.call(self._decide_hook, run_id, hook_id, decision)

    async def get_step(self, run_id: str, step: str) -> StepRow | None:
        """The row of a dispatched step."""
        return await self._clients.call(self._step, run_id, step)

    async def put_step(self, row: StepRow) -> StepRow:
        """Put revision n, only if revision n - 1 stands (nothing for 1). Returns what stands.

        That is an equal row also when an own write lost its reply.
        """
        return await self._clients.call(self._put_step, row)

    async def put_inbox(self, row: InboxRow) -> InboxRow:
        """Put if absent. Returns the entry that stands: this one, or the one already there."""
        return await self._clients.call(self._put_inbox, row)

    async def get_checkpoint(self, run_id: str, step: str) -> Checkpoint | None:
        """The checkpoint of a step."""
        item = await self._clients.call(self._table.get, run_key(run_id), checkpoint_key(step))
        return read_checkpoint(run_id, item) if item else None

    async def put_checkpoint(self, checkpoint: Checkpoint) -> bool:
        """Put, unless one with a higher `last_event` stands. Whether it was put."""
        item = checkpoint_item(checkpoint)
        _check_size(f"checkpoint of step {checkpoint.step!r} of run {checkpoint.run_id!r}", item)
        return await self._clients.call(
            self._table.put,
            item,
            CheckpointItem.pk.does_not_exist()
            | (CheckpointItem.last_event <= checkpoint.last_event),
        )

    async def expire_checkpoint(self, run_id: str, step: str, at: Millis) -> None:
        """Let the checkpoint of a step be gone from `at` on: DynamoDB deletes it within days."""
        await self._clients.call(
            self._table.update,
            run_key(run_id),
            checkpoint_key(step),
            [Path(["expires_at"]).set({"N": str(-(-at // 1000))})],
            CheckpointItem.pk.exists(),
        )

    async def put_chunk(self, chunk: Chunk) -> bool:
        """Put if no row has its position. Whether it stands: an equal row is its own write."""
        return await self._clients.call(self._put_chunk, chunk)

    async def get_chunks(
        self, run_id: str, step: str, *, after: int = 0, limit: int | None = None
    ) -> tuple[Chunk, ...]:
        """Output rows with a position above `after`, in order; all of them without `limit`."""
        return await self._clients.call(self._chunks, run_id, step, after, limit)

    async def publish(self, definition: PublishedWorkflow) -> None:
        """Put a definition, once per digest, and make it the current one.

        Not if the current one is of a newer version, or of the same one and published later.
        """
        item = definitions.definition_item(definition, CURRENT)
        _check_size(f"definition of workflow {definition.name!r}", item)
        await self._clients.call(definitions.publish, self._table, definition, item)

    async def get_definition(self, workflow: str) -> PublishedWorkflow | None:
        """The current definition of a workflow. May lag."""
        return await self._clients.call(definitions.find, self._table, workflow)

    async def list_definitions(
        self, *, limit: int = 50, cursor: str | None = None
    ) -> Page[PublishedWorkflow]:
        """Current definitions by name. May lag. Raises `ValueError` on a bad cursor."""
        return await self._clients.call(definitions.page, self._table, limit, cursor)

    async def list_runs(
        self,
        *,
        workflow: str | None = None,
        status: RunStatus | None = None,
        attention: AttentionKind | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[RunHeader]:
        """Runs, newest first; ties by run id. May lag. Raises `ValueError` on a bad cursor.

        `attention` is the kind of note that their headers carry. Only runs with a note and FAILED
        ones have an index. PENDING, SUSPENDED, COMPLETED and CANCELLED ones are picked from all
        runs: a page ends after a thousand of these, however few it has found.
        """
        return await self._clients.call(
            lists.runs,
            self._table,
            workflow=workflow,
            status=status,
            attention=attention,
            limit=limit,
            cursor=cursor,
        )

    async def overdue_runs(self, before: Millis, limit: int) -> tuple[RunHeader, ...]:
        """Runs whose `RunHeader.due` was before a time, the most overdue first. May lag."""
        return await self._clients.call(lists.overdue_runs, self._table, before, limit)

    async def overdue_hooks(self, before: Millis, limit: int) -> tuple[HookRow, ...]:
        """PENDING hooks whose deadline was before a time, the most overdue first. May lag."""
        return await self._clients.call(lists.overdue_hooks, self._table, before, limit)

    async def list_hooks(
        self, *, run_id: str | None = None, limit: int = 50, cursor: str | None = None
    ) -> Page[HookRow]:
        """PENDING hooks, oldest first; ties by run and hook id. `ValueError` on a bad cursor."""
        return await self._clients.call(lists.hooks, self._table, run_id, limit, cursor)

    # What follows blocks: `Clients.call` runs it in a thread.

    def _erase(self, run_id: str, until: Millis, partitions: Sequence[str]) -> None:
        keys = self._table.keys(run_key(run_id), _NOT_HEADER)
        commits = [sk for _, sk in keys if sk.startswith("E#")]
        others = [(pk, sk) for pk, sk in keys if not sk.startswith("E#")]
        for partition in partitions:
            others += self._table.keys(partition)
        # The commits at last: who comes back after a crash in between finds what is left.
        self._table.write_many([], others)
        self._table.write_many([emptied_commit(sk, run_id, until) for sk in commits], [])

    def _header(self, run_id: str) -> RunHeader | None:
        item = self._table.get(run_key(run_id), HEADER)
        return read_header(item) if item else None

    def _put_header(self, header: RunHeader) -> RunHeader:
        item = header_item(header)
        _check_size(f"header of run {header.run_id!r}", item)
        self._make_known(header.workflow)
        if self._table.put(item, RunItem.pk.does_not_exist()):
            return header
        found = self._header(header.run_id)
        if found is None:
            raise _deleted(header.run_id)
        return found

    def _make_known(self, workflow: str) -> None:
        if workflow in self._known_workflows:
            return
        item = workflow_item(workflow)
        if self._table.get(item["pk"]["S"], item["sk"]["S"], consistent=False) is None:
            self._table.put(item)
        self._known_workflows.add(workflow)

    def _update_header(self, header: RunHeader, over: RunHeader | None, reopens: bool) -> bool:
        item = header_item(header)
        _check_size(f"header of run {header.run_id!r}", item)
        actions = replacing(item, _REPLACED)
        if header.cancel_requested:
            actions.append(RunItem.cancel_requested.set(True))
        elif reopens:
            actions.append(RunItem.cancel_requested.remove())
        condition = RunItem.last_event <= header.last_event
        if over is not None:
            condition &= _noted_as(header_item(over))
        if self._table.update(run_key(header.run_id), HEADER, actions, condition):
            return True
        if over is None or over.attention == header.attention:
            return False
        # A write that changes the note, and whose reply was lost, stands in its own way.
        found = self._table.get(run_key(header.run_id), HEADER)
        return found is not None and _without_flag(found) == _without_flag(item)

    def _append(self, run_id: str, commit: Commit) -> bool:
        item = commit_item(run_id, commit)
        _check_size(f"commit {commit.first} of run {run_id!r}", item)
        if self._table.put(item, RunItem.pk.does_not_exist()):
            return True
        who = ("turn", "number")
        found = self._table.get(item["pk"]["S"], item["sk"]["S"], only=who)
        if found is None:
            raise _deleted(run_id)
        return all(found[name] == item[name] for name in who)

    def _hook(self, run_id: str, hook_id: str) -> HookRow | None:
        item = self._table.get(run_key(run_id), hook_key(hook_id))
        return read_hook(item) if item else None

    def _put_hook(self, row: HookRow) -> HookRow:
        item = hook_item(row)
        _check_size(f"hook {row.hook_id!r} of run {row.run_id!r}", item)
        if self._table.put(item, HookItem.pk.does_not_exist()):
            return row
        found = self._hook(row.run_id, row.hook_id)
        if found is None:
            raise _deleted(row.run_id)
        return found

    def _decide_hook(self, run_id: str, hook_id: str, decision: Decision) -> HookRow | None:
        actions = [
            HookItem.status.set(decision.status.value),
            HookItem.decision_id.set(decision.decision_id),
            HookItem.decided_at.set(decision.decided_at),
            HookItem.wanted_in.remove(),
            HookItem.wanted_at.remove(),
        ]
        if decision.payload is not None:
            actions.append(HookItem.payload.set(decision.payload))
        if decision.actor is not None:
            actions.append(HookItem.actor.set(decision.actor))
        try:
            decided = self._table.change(
                run_key(run_id),
                hook_key(hook_id),
                actions,
                HookItem.status == HookStatus.PENDING.value,
            )
        except ClientError as error:
            if error_code(error) == "ValidationException":
                self._check_decided_size(run_id, hook_id, decision)
            raise
        # Whoever loses reads what the winner wrote; after a lost reply that is its own decision.
        return read_hook(decided) if decided else self._hook(run_id, hook_id)

    def _check_decided_size(self, run_id: str, hook_id: str, decision: Decision) -> None:
        """Raise `ItemTooLarge` if that is why DynamoDB refuses: only it knew the row's size."""
        row = self._hook(run_id, hook_id)
        if row is None:
            return
        decided = replace(
            row,
            status=decision.status,
            decision_id=decision.decision_id,
            decided_at=decision.decided_at,
            payload=decision.payload,
            actor=decision.actor,
        )
        _check_size(f"hook {hook_id!r} of run {run_id!r}", hook_item(decided))

    def _step(self, run_id: str, step: str) -> StepRow | None:
        item = self._table.get(run_key(run_id), step_key(step))
        return read_step(run_id, item) if item else None

    def _put_step(self, row: StepRow) -> StepRow:
        item = step_item(row)
        _check_size(f"step {row.step!r} of run {row.run_id!r}", item)
        condition = (
            StepItem.pk.does_not_exist()
            if row.revision == 1
            else StepItem.revision == row.revision - 1
        )
        if self._table.put(item, condition):
            return row
        found = self._step(row.run_id, row.step)
        if found is None:
            raise _deleted(row.run_id)
        return found

    def _put_inbox(self, row: InboxRow) -> InboxRow:
        item = inbox_item(row)
        _check_size(f"entry {row.entry_id!r} of the inbox of run {row.run_id!r}", item)
        if self._table.put(item, InboxItem.pk.does_not_exist()):
            return row
        found = self._table.get(item["pk"]["S"], item["sk"]["S"])
        if found is None:
            raise _deleted(row.run_id)
        return read_inbox(row.run_id, found)

    def _put_chunk(self, chunk: Chunk) -> bool:
        item = chunk_item(chunk)
        name = f"output {chunk.position} of step {chunk.step!r} of run {chunk.run_id!r}"
        _check_size(name, item)
        if self._table.put(item, RunItem.pk.does_not_exist()):
            return True
        return self._table.get(item["pk"]["S"], item["sk"]["S"]) == item

    def _chunks(self, run_id: str, step: str, after: int, limit: int | None) -> tuple[Chunk, ...]:
        if limit is not None and limit < 1:
            return ()
        between = RunItem.sk.between(chunk_key(step, max(0, after) + 1), last_chunk_key(step))
        items = self._table.query(run_key(run_id), between, page=limit)
        return tuple(read_chunk(run_id, item) for item in islice(items, limit))


def _check_size(name: str, item: RawItem) -> None:
    size = item_size(item)
    if size > _ITEM_LIMIT:
        raise ItemTooLarge(name, size, _ITEM_LIMIT)


def _noted_as(item: RawItem) -> Condition:
    """That the note on a header is the one on this item."""
    note = Path(["attention"])
    return note == item["attention"] if "attention" in item else note.does_not_exist()


def _without_flag(item: RawItem) -> RawItem:
    return {name: value for name, value in item.items() if name != "cancel_requested"}


def _deleted(run_id: str) -> TransientError:
    return TransientError(f"run {run_id!r} was deleted while it was written")
