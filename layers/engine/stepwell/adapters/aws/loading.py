"""Loading a run from the table, whole or from a snapshot on; and cutting off what lies before that.

Every item is as it stands when it is read, but a query is no snapshot: of what another turn writes
meanwhile, any part may be in it. A log with a hole is therefore read again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, pairwise

from stepwell.adapters.aws.items import CommitItem, RawItem, RunItem
from stepwell.adapters.aws.keys import (
    HEADER,
    LOAD_END,
    STEPS_END,
    commit_key,
    hook_key,
    run_key,
    step_key,
)
from stepwell.adapters.aws.rows import (
    read_commit,
    read_header,
    read_hook,
    read_inbox,
    read_step,
)
from stepwell.adapters.aws.table import Table
from stepwell.core.events import Commit
from stepwell.core.records import HookRow, InboxRow, RunHeader, StepRow
from stepwell.core.signals import is_subscription
from stepwell.engine.ports import RunRows

_READS_OF_A_HOLE = 2


def load(table: Table, run_id: str) -> RunRows:
    """All that a run is loaded with. Blocks."""
    read = _read_subscription if is_subscription(run_id) else _read
    rows = read(table, run_id)
    for _ in range(_READS_OF_A_HOLE):
        if _is_whole(rows):
            break
        rows = read(table, run_id)
    return rows


def trim(
    table: Table, run_id: str, before: int, hooks: Sequence[str], steps: Sequence[str]
) -> None:
    """Delete the commits of a run that begin below a number, and rows by id. Blocks."""
    keys = [hook_key(hook) for hook in hooks] + [step_key(step) for step in steps]
    if before > 0:
        old = CommitItem.sk.between(commit_key(0), commit_key(before - 1))
        items = table.query(run_key(run_id), old, only=("sk",))
        keys += [item["sk"]["S"] for item in items]
    table.write_many([], [(run_key(run_id), key) for key in dict.fromkeys(keys)])


def _read(table: Table, run_id: str) -> RunRows:
    items = table.query(run_key(run_id), RunItem.sk.between(HEADER, LOAD_END))
    return _rows(run_id, items)


def _read_subscription(table: Table, run_id: str) -> RunRows:
    """The header comes first: it names the commit from which the log is read."""
    partition = run_key(run_id)
    before = list(table.query(partition, RunItem.sk.between(HEADER, STEPS_END)))
    told = (item["snapshot"]["N"] for item in before if "snapshot" in item)
    start = int(next(told, 0))
    log = table.query(partition, CommitItem.sk.between(commit_key(start), LOAD_END))
    return _rows(run_id, chain(before, log))


def _rows(run_id: str, items: Iterable[RawItem]) -> RunRows:
    header: RunHeader | None = None
    commits: list[Commit] = []
    hooks: list[HookRow] = []
    steps: list[StepRow] = []
    inbox: list[InboxRow] = []
    for item in items:
        kind = item["sk"]["S"][:2]
        if kind == HEADER:
            header = read_header(item)
        elif kind == "E#":
            commit = read_commit(item)
            if commit.events:  # none in one that a deletion left in its place
                commits.append(commit)
        elif kind == "H#":
            hooks.append(read_hook(item))
        elif kind == "D#":
            steps.append(read_step(run_id, item))
        elif kind == "I#":
            inbox.append(read_inbox(run_id, item))
    return RunRows(
        header=header,
        commits=tuple(commits),
        hooks=tuple(hooks),
        steps=tuple(steps),
        inbox=tuple(inbox),
    )


def _is_whole(rows: RunRows) -> bool:
    """Whether the log has no hole, and begins where the header says, if it says so."""
    start = 0 if rows.header is None else rows.header.snapshot
    if start and [commit.first for commit in rows.commits[:1]] != [start]:
        return False
    return all(one.last + 1 == following.first for one, following in pairwise(rows.commits))
