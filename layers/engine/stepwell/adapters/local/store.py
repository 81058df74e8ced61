"""The table: runs and what belongs to them, definitions; as strict as DynamoDB about them.

Each conditional write is one statement that holds its condition. An item above 400 KB is refused,
and a run is read in pages of at most 1 MB, each continuing after the last key of the one before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from pydantic import TypeAdapter

from stepwell.adapters.local import definitions, deletion, inbox, lists
from stepwell.adapters.local.database import Database, Row, SqlValue
from stepwell.adapters.local.rows import (
    HOOK_COLUMNS,
    HOOK_FIELDS,
    dump_header,
    hook_values,
    read_header,
    read_hook,
)
from stepwell.core.events import Commit, dump_events, load_events
from stepwell.core.map_rows import ShardKey
from stepwell.core.records import (
    AttentionKind,
    Checkpoint,
    Chunk,
    Decision,
    HookRow,
    InboxRow,
    Millis,
    PublishedWorkflow,
    RunHeader,
    RunStatus,
    StepRow,
)
from stepwell.engine.ports import Clock, ItemTooLarge, Page, RunRows, TransientError

T = TypeVar("T")

_CHECKPOINT: TypeAdapter[Checkpoint] = TypeAdapter(Checkpoint)
_STEP: TypeAdapter[StepRow] = TypeAdapter(StepRow)

_PUT_HEADER = """
INSERT INTO runs
    (run_id, workflow, status, attention, due, recency, last_event, cancel_requested, body)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (run_id) DO NOTHING
"""

# Workflow and time of creation never change, so their indexes are left alone.
_UPDATE_HEADER = """
UPDATE runs SET status = ?, attention = ?, due = ?, kept_until = ?, last_event = ?,
    cancel_requested = max(cancel_requested * ?, ?), body = ?
WHERE run_id = ? AND last_event <= ?
"""

# A repeated write updates its own row to what it is, and so counts as done.
_APPEND = """
INSERT INTO commits (run_id, first, turn, number, size, events) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (run_id, first) DO UPDATE SET number = excluded.number
WHERE turn = excluded.turn AND number = excluded.number
"""

_COMMITS = """
SELECT size, first, turn, number, events FROM commits
WHERE run_id = ? AND first > ifnull(?, 0) ORDER BY first
"""

_HOOKS = f"""
SELECT size, hook_id, {HOOK_COLUMNS} FROM hooks
WHERE run_id = ? AND ifnull(hook_id > ?, true) ORDER BY hook_id
"""  # noqa: S608

_STEPS = """
SELECT size, step, body FROM steps WHERE run_id = ? AND ifnull(step > ?, true) ORDER BY step
"""

_PUT_STEP = """
INSERT INTO steps (revision, size, body, run_id, step) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (run_id, step) DO NOTHING
"""

_REPLACE_STEP = """
UPDATE steps SET revision = ?, size = ?, body = ? WHERE run_id = ? AND step = ? AND revision = ?
"""

_PUT_HOOK = f"""
INSERT INTO hooks ({HOOK_COLUMNS}, size) VALUES ({", ".join("?" * (len(HOOK_FIELDS) + 1))})
ON CONFLICT (run_id, hook_id) DO NOTHING
"""  # noqa: S608

_DECIDE_HOOK = f"""
UPDATE hooks SET status = ?, decision_id = ?, decided_at = ?, payload = ?, actor = ?,
    size = size + ?
WHERE run_id = ? AND hook_id = ? AND status = 'PENDING'
RETURNING size, {HOOK_COLUMNS}
"""  # noqa: S608

_PUT_CHECKPOINT = """
INSERT INTO checkpoints (run_id, step, last_event, body) VALUES (?, ?, ?, ?)
ON CONFLICT (run_id, step) DO UPDATE SET last_event = excluded.last_event, body = excluded.body,
    expires_at = NULL
WHERE last_event <= excluded.last_event
"""

# As above: a repeated write counts as done.
_PUT_CHUNK = """
INSERT INTO chunks (run_id, step, position, number, at, value, last_event)
VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (run_id, step, position) DO UPDATE SET number = excluded.number
WHERE (number, at, last_event) = (excluded.number, excluded.at, excluded.last_event)
    AND value IS excluded.value
"""

_CHUNKS = """
SELECT position, number, at, value, last_event FROM chunks
WHERE run_id = ? AND step = ? AND position > ? ORDER BY position LIMIT ?
"""


class SqliteStore:
    """Implements the `Store` port. The limits are DynamoDB's; tests may make them smaller.

    `on_commit` is called with each commit that this object has put, once it stands.
    """

    def __init__(
        self,
        database: Database,
        clock: Clock,
        *,
        item_limit: int = 400 * 1024,
        page_limit: int = 1024 * 1024,
    ) -> None:
        self._database = database
        self._clock = clock
        self._item_limit = item_limit
        self._page_limit = page_limit
        self.on_commit: Callable[[str, Commit], None] | None = None

    async def load(self, run_id: str) -> RunRows:
        """Header, log in order, hooks, steps and inbox of a run; every page, as of one moment."""
        with self._database.reading():
            header = self._header(run_id)
            snapshot = 0 if header is None else header.snapshot
            start = snapshot - 1 if snapshot else None  # that commit begins with it
            commits = self._pages(_COMMITS, run_id, start)
            hooks = self._pages(_HOOKS, run_id)
            steps = self._pages(_STEPS, run_id)
            entries = self._pages(inbox.ENTRIES, run_id)
        return RunRows(
            header=header,
            commits=tuple(
                Commit(first=first, turn=turn, number=number, events=load_events(events))
                for _, first, turn, number, events in commits
                if number  # 0 in one that a deletion left in its place
            ),
            hooks=tuple(read_hook(row[2:]) for row in hooks),
            steps=tuple(_STEP.validate_json(body) for *_, body in steps),
            inbox=tuple(inbox.read(body) for *_, body in entries),
        )

    async def get_header(self, run_id: str) -> RunHeader | None:
        """The header alone."""
        return self._header(run_id)

    async def put_header(self, header: RunHeader) -> RunHeader:
        """Put if absent. Returns the header that stands: this one, or the one already there."""
        put = self._database.change(
            _PUT_HEADER,
            header.run_id,
            header.workflow,
            header.status.value,
            _attention(header),
            header.due,
            -header.created_at,
            header.last_event,
            header.cancel_requested,
            self._header_body(header),
        )
        return header if put else _standing(self._header(header.run_id), header.run_id)

    async def update_header(
        self, header: RunHeader, *, over: RunHeader | None = None, reopens: bool = False
    ) -> bool:
        """Replace, only if one is there whose `last_event` is not higher. Whether it was done.

        With `over`, the header as it was read, also only if the note that stands is still the one
        on it. A `cancel_requested` flag that stands is kept, unless this `reopens` the run.
        """
        with self._database.writing():
            if over is not None:
                standing = self._header(header.run_id)
                if standing is None or standing.attention != over.attention:
                    return False
            return self._replace_header(header, keeps_flag=not reopens)

    def _replace_header(self, header: RunHeader, *, keeps_flag: bool) -> bool:
        changed = self._database.change(
            _UPDATE_HEADER,
            header.status.value,
            _attention(header),
            header.due,
            header.kept_until,
            header.last_event,
            keeps_flag,
            header.cancel_requested,
            self._header_body(header),
            header.run_id,
            header.last_event,
        )
        return changed == 1

    async def bury(self, tombstone: RunHeader) -> bool:
        """Replace a header by what is left of a deleted run. Whether it stands."""
        return deletion.bury(self._database, tombstone, self._header_body(tombstone))

    async def erase(
        self,
        run_id: str,
        until: Millis,  # noqa: ARG002 - the header has it
        shards: Sequence[ShardKey] = (),  # noqa: ARG002 - the tables tell
    ) -> None:
        """Delete all rows of a run but its header; its empty commits go with that."""
        deletion.erase(self._database, run_id, self._clock.now())

    async def expired_runs(self, before: Millis, limit: int) -> tuple[RunHeader, ...]:
        """Runs whose `kept_until` was before a time, the longest expired first."""
        return lists.expired_runs(self._database, before, limit)

    async def request_cancel(self, run_id: str) -> bool:
        """Set `cancel_requested` on an existing header. Whether there is one."""
        return (
            self._database.change("UPDATE runs SET cancel_requested = 1 WHERE run_id = ?", run_id)
            == 1
        )

    async def append(self, run_id: str, commit: Commit) -> bool:
        """Put the commit, only if no item has its first number. Whether it stands.

        True also when the item there has the same `turn` and `number`: an own write whose reply
        was lost. A commit without events is a `ValueError`: it would take the next one's number.
        """
        if not commit.events:
            raise ValueError(f"commit {commit.first} of run {run_id!r} has no events")
        events = dump_events(commit.events)
        size = len(events)
        if size > self._item_limit:
            self._check_size(f"commit {commit.first} of run {run_id!r}", size)
        changed = self._database.change(
            _APPEND, run_id, commit.first, commit.turn, commit.number, size, events.decode()
        )
        if changed and self.on_commit is not None:
            self.on_commit(run_id, commit)
        return changed == 1

    async def trim(
        self, run_id: str, before: int, hooks: Sequence[str] = (), steps: Sequence[str] = ()
    ) -> None:
        """Delete the commits of a run whose first number is below one, and rows by id."""
        with self._database.writing():
            self._database.change(
                "DELETE FROM commits WHERE run_id = ? AND first < ?", run_id, before
            )
            for hook in hooks:
                self._database.change(
                    "DELETE FROM hooks WHERE run_id = ? AND hook_id = ?", run_id, hook
                )
            for step in steps:
                self._database.change(
                    "DELETE FROM steps WHERE run_id = ? AND step = ?", run_id, step
                )

    async def get_hook(self, run_id: str, hook_id: str) -> HookRow | None:
        """One hook row."""
        return self._hook(run_id, hook_id)

    async def put_hook(self, row: HookRow) -> HookRow:
        """Put if absent. Returns the row that stands: this one, or the one already there."""
        values = hook_values(row)
        size = _size(values)
        self._check_size(f"hook {row.hook_id!r} of run {row.run_id!r}", size)
        if self._database.change(_PUT_HOOK, *values, size):
            return row
        return _standing(self._hook(row.run_id, row.hook_id), row.run_id)

    async def decide_hook(self, run_id: str, hook_id: str, decision: Decision) -> HookRow | None:
        """Decide a PENDING row. Returns the row that stands, None if there is none."""
        values = (
            decision.status.value,
            decision.decision_id,
            decision.decided_at,
            decision.payload,
            decision.actor,
        )
        with self._database.writing():
            rows = self._database.query(_DECIDE_HOOK, *values, _size(values), run_id, hook_id)
            for size, *_ in rows:
                # Leaving by an error takes the decision back.
                self._check_size(f"hook {hook_id!r} of run {run_id!r}", size)
        return read_hook(rows[0][1:]) if rows else self._hook(run_id, hook_id)

    async def get_step(self, run_id: str, step: str) -> StepRow | None:
        """The row of a dispatched step."""
        rows = self._database.query(
            "SELECT body FROM steps WHERE run_id = ? AND step = ?", run_id, step
        )
        return _STEP.validate_json(rows[0][0]) if rows else None

    async def put_step(self, row: StepRow) -> StepRow:
        """Put revision n, only if revision n - 1 stands (nothing for 1). Returns what stands.

        That is an equal row also when an own write lost its reply.
        """
        body = _STEP.dump_json(row)
        self._check_size(f"step {row.step!r} of run {row.run_id!r}", len(body))
        values = (row.revision, len(body), body.decode(), row.run_id, row.step)
        if row.revision == 1:
            put = self._database.change(_PUT_STEP, *values)
        else:
            put = self._database.change(_REPLACE_STEP, *values, row.revision - 1)
        return row if put else _standing(await self.get_step(row.run_id, row.step), row.run_id)

    async def put_inbox(self, row: InboxRow) -> InboxRow:
        """Put if absent. Returns the entry that stands: this one, or the one already there."""
        body = inbox.body_of(row)
        self._check_size(f"entry {row.entry_id!r} of the inbox of run {row.run_id!r}", len(body))
        return _standing(inbox.put(self._database, row, body), row.run_id)

    async def get_checkpoint(self, run_id: str, step: str) -> Checkpoint | None:
        """The checkpoint of a step."""
        rows = self._database.query(
            "SELECT body FROM checkpoints WHERE run_id = ? AND step = ?", run_id, step
        )
        return _CHECKPOINT.validate_json(rows[0][0]) if rows else None

    async def put_checkpoint(self, checkpoint: Checkpoint) -> bool:
        """Put, unless one with a higher `last_event` stands. Whether it was put."""
        body = _CHECKPOINT.dump_json(checkpoint)
        run_id, step = checkpoint.run_id, checkpoint.step
        self._check_size(f"checkpoint of step {step!r} of run {run_id!r}", len(body))
        changed = self._database.change(
            _PUT_CHECKPOINT, run_id, step, checkpoint.last_event, body.decode()
        )
        return changed == 1

    async def expire_checkpoint(self, run_id: str, step: str, at: Millis) -> None:
        """Let the checkpoint of a step be gone from `at` on: the next call deletes it."""
        change = self._database.change
        change("DELETE FROM checkpoints WHERE expires_at <= ?", self._clock.now())
        change(
            "UPDATE checkpoints SET expires_at = ? WHERE run_id = ? AND step = ?", at, run_id, step
        )

    async def put_chunk(self, chunk: Chunk) -> bool:
        """Put if no row has its position. Whether it stands: an equal row is its own write."""
        values = (
            chunk.run_id,
            chunk.step,
            chunk.position,
            chunk.number,
            chunk.at,
            chunk.value,
            chunk.last_event,
        )
        name = f"output {chunk.position} of step {chunk.step!r} of run {chunk.run_id!r}"
        self._check_size(name, _size(values))
        return self._database.change(_PUT_CHUNK, *values) == 1

    async def get_chunks(
        self, run_id: str, step: str, *, after: int = 0, limit: int | None = None
    ) -> tuple[Chunk, ...]:
        """Output rows with a position above `after`, in order; all of them without `limit`."""
        most = -1 if limit is None else max(0, limit)
        return tuple(
            Chunk(
                run_id=run_id,
                step=step,
                position=position,
                number=number,
                at=at,
                value=value,
                last_event=last_event,
            )
            for position, number, at, value, last_event in self._database.query(
                _CHUNKS, run_id, step, after, most
            )
        )

    async def publish(self, definition: PublishedWorkflow) -> None:
        """Put a definition, once per digest, and make it the current one.

        Not if the current one is of a newer version, or of the same one and published later.
        """
        body = definitions.body_of(definition)
        self._check_size(f"definition of workflow {definition.name!r}", len(body))
        definitions.put(self._database, definition, body.decode())

    async def get_definition(self, workflow: str) -> PublishedWorkflow | None:
        """The current definition of a workflow."""
        return definitions.current(self._database, workflow)

    async def list_definitions(
        self, *, limit: int = 50, cursor: str | None = None
    ) -> Page[PublishedWorkflow]:
        """Current definitions by name. Raises `ValueError` on a bad cursor."""
        return definitions.page(self._database, limit, cursor)

    async def list_runs(
        self,
        *,
        workflow: str | None = None,
        status: RunStatus | None = None,
        attention: AttentionKind | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[RunHeader]:
        """Runs, newest first; ties by run id, ascending. Raises `ValueError` on a bad cursor.

        `attention` is the kind of note that their headers carry.
        """
        return lists.runs(
            self._database,
            workflow=workflow,
            status=status,
            attention=attention,
            limit=limit,
            cursor=cursor,
        )

    async def list_hooks(
        self, *, run_id: str | None = None, limit: int = 50, cursor: str | None = None
    ) -> Page[HookRow]:
        """PENDING hooks, oldest first; ties by run and hook id. `ValueError` on a bad cursor."""
        return lists.hooks(self._database, run_id, limit, cursor)

    async def overdue_runs(self, before: Millis, limit: int) -> tuple[RunHeader, ...]:
        """Runs whose `RunHeader.due` was before a time, the most overdue first."""
        return lists.overdue_runs(self._database, before, limit)

    async def overdue_hooks(self, before: Millis, limit: int) -> tuple[HookRow, ...]:
        """PENDING hooks whose deadline was before a time, the most overdue first."""
        return lists.overdue_hooks(self._database, before, limit)

    def _header(self, run_id: str) -> RunHeader | None:
        rows = self._database.query(
            "SELECT body, cancel_requested FROM runs WHERE run_id = ?", run_id
        )
        return read_header(*rows[0]) if rows else None

    def _hook(self, run_id: str, hook_id: str) -> HookRow | None:
        rows = self._database.query(
            f"SELECT {HOOK_COLUMNS} FROM hooks WHERE run_id = ? AND hook_id = ?",  # noqa: S608
            run_id,
            hook_id,
        )
        return read_hook(rows[0]) if rows else None

    def _pages(self, sql: str, run_id: str, start: SqlValue = None) -> list[Row]:
        """All rows that the statement gives for a run behind a key, page after page."""
        rows, more = self._database.page(self._page_limit, sql, run_id, start)
        while more:
            page, more = self._database.page(self._page_limit, sql, run_id, rows[-1][1])
            rows += page
        return rows

    def _header_body(self, header: RunHeader) -> str:
        body = dump_header(header)
        self._check_size(f"header of run {header.run_id!r}", len(body))
        return body.decode()

    def _check_size(self, item: str, size: int) -> None:
        if size > self._item_limit:
            raise ItemTooLarge(item, size, self._item_limit)


def _attention(header: RunHeader) -> str | None:
    return None if header.attention is None else header.attention.kind


def _size(values: Iterable[SqlValue]) -> int:
    """Bytes that values take in an item; a number counts as eight."""
    return sum(
        len(value.encode()) if isinstance(value, str) else 8
        for value in values
        if value is not None
    )


def _standing(row: T | None, run_id: str) -> T:
    """The row that stood in the way of a put."""
    if row is None:
        raise TransientError(f"run {run_id!r} was deleted while it was written")
    return row
