"""What the embedded file promises beyond the ports: versions, transactions, several processes."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from stepwell.adapters.local.clock import SeededIds, SkippingClock, SystemClock, SystemIds
from stepwell.adapters.local.database import (
    _VERSION_2,
    _VERSION_3,
    SCHEMA_VERSION,
    Database,
    SchemaMismatch,
)
from stepwell.adapters.local.queue import SqliteQueue
from stepwell.adapters.local.rows import dump_header
from stepwell.adapters.local.store import SqliteStore
from stepwell.adapters.local.wiring import LocalPorts, open_ports
from stepwell.core.cursors import Place, write_cursor
from stepwell.core.messages import Message
from stepwell.core.records import UNHEARD, Attention, RunStatus
from stepwell.engine.ports import ItemTooLarge, TransientError
from tests.contract.given import (
    MAX_RECEIVES,
    START,
    VISIBILITY,
    checkpoint,
    chunk,
    commit,
    entry,
    header,
    hook,
    other_process,
    run,
    step_row,
    take,
    waiting,
    wake,
)

#: A row as an older version wrote it.
CHECKPOINT = (
    '{"run_id":"run","step":"step","last_event":1,"save_id":"s1","saved_at":1700000000000,'
    '"output":0,"answers":[],"value":"1"}'
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "stepwell.db"


@pytest.fixture
def clock() -> SkippingClock:
    return SkippingClock(START)


@pytest.fixture
def local(path: Path, clock: SkippingClock) -> Iterator[LocalPorts]:
    with open_ports(
        path, clock=clock, visibility=VISIBILITY, max_receive_count=MAX_RECEIVES
    ) as opened:
        yield opened


def together(*processes: subprocess.Popen[str]) -> list[list[str]]:
    """Let processes go on at once when all are ready. What each said after that."""
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    said = [process.communicate(timeout=60)[0].split() for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes)
    return said


def plan_of(local: LocalPorts, listing: Coroutine[Any, Any, object]) -> list[str]:
    """How SQLite means to run the one statement of a listing."""
    statements: list[str] = []
    local.database._connection.set_trace_callback(statements.append)
    run(listing)
    local.database._connection.set_trace_callback(None)
    (statement,) = statements
    return [row[3] for row in local.database.query(f"EXPLAIN QUERY PLAN {statement}")]


# Opening


def test_opening_makes_the_folders_and_a_wal_file(tmp_path: Path) -> None:
    with Database(tmp_path / "a" / "b" / "c.db") as database:
        assert database.query("PRAGMA journal_mode") == [("wal",)]
        assert database.query("PRAGMA synchronous") == [(1,)]


def test_full_synchronisation_is_an_option(path: Path) -> None:
    with Database(path, synchronous="FULL") as database:
        assert database.query("PRAGMA synchronous") == [(2,)]


def test_what_was_written_is_there_when_opened_again(path: Path) -> None:
    for n in range(1, 4):
        with open_ports(path) as opened:
            assert len(run(opened.store.load("run")).commits) == n - 1
            assert run(opened.store.append("run", commit(n)))


def test_databases_in_memory_are_apart() -> None:
    with open_ports(":memory:") as one, open_ports(":memory:") as other:
        run(one.store.put_header(header()))
        assert run(other.store.get_header("run")) is None


@pytest.mark.parametrize("query", ["SELECT * FROM sqlite_master", "PRAGMA user_version"])
def test_a_database_in_memory_has_what_a_new_file_has(path: Path, query: str) -> None:
    with Database(path) as new, Database(":memory:") as database:
        assert sorted(database.query(query)) == sorted(new.query(query)) != []


def test_a_file_of_a_newer_version_is_refused_and_left_alone(path: Path) -> None:
    with Database(path) as database:
        database.change(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    with pytest.raises(SchemaMismatch, match=f"has schema version {SCHEMA_VERSION + 1}"):
        Database(path)


def test_a_file_of_an_older_version_gets_what_it_lacks(path: Path, tmp_path: Path) -> None:
    older = sqlite3.connect(path)
    older.executescript(_VERSION_2 + "PRAGMA user_version = 2;")
    older.execute("INSERT INTO checkpoints VALUES ('run', 'step', 1, ?)", (CHECKPOINT,))
    older.commit()
    older.close()
    with Database(path) as upgraded, Database(tmp_path / "new.db") as new:
        tables = "SELECT type, name, sql FROM sqlite_master ORDER BY type, name"
        assert upgraded.query(tables) == new.query(tables)
        assert upgraded.query("PRAGMA user_version") == [(SCHEMA_VERSION,)]
    with open_ports(path) as opened:
        assert run(opened.store.get_checkpoint("run", "step")) == checkpoint()
        row = step_row()
        assert run(opened.store.put_step(row)) == row


def test_a_file_of_an_older_version_knows_what_is_overdue_in_it(path: Path) -> None:
    note = Attention(kind="STUCK", reason="r", since=START)
    rows = [
        header("pending"),
        header("ended", **waiting(("timer", START), status=RunStatus.COMPLETED)),
        header("stuck", **waiting(("timer", START), attention=note)),
        header("asks", **waiting(("hook", START), ("hook", None))),
        header("sleeps", **waiting(("hook", START), ("timer", START + 9), ("retry", START + 5))),
        header("works", **waiting(("hook", START), ("step", None))),
        header("both", **waiting(("step", None), ("timer", START + 9))),
        header("handed-over", **waiting(updated_at=START + 7)),
    ]
    older = sqlite3.connect(path)
    older.executescript(_VERSION_2 + _VERSION_3 + "PRAGMA user_version = 3;")
    for row in rows:
        kind = None if row.attention is None else row.attention.kind
        columns = (row.run_id, row.workflow, row.status.value, kind, -START, 0, 0)
        older.execute(
            "INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (*columns, dump_header(row).decode()),
        )
    older.execute("INSERT INTO dead_letters VALUES (1, 'm', 'run', 'b', 0, 1, 'r', 5)")
    older.commit()
    older.close()
    with open_ports(path) as opened:
        due: dict[str, int | None] = dict(opened.database.query("SELECT run_id, due FROM runs"))
        assert due == {row.run_id: row.due for row in rows}
        assert [due[name] for name in ("sleeps", "works")] == [START + 5, START + UNHEARD]
        assert len(run(opened.queue.dead_letters())) == 1
        assert run(opened.queue.dead_letters(new=True)) == ()


def test_what_is_overdue_is_found_by_its_index(local: LocalPorts) -> None:
    for table, time in (("runs", "due"), ("hooks WHERE status = 'PENDING'", "expires_at")):
        joined = "AND" if "WHERE" in table else "WHERE"
        plan = local.database.query(
            f"EXPLAIN QUERY PLAN SELECT * FROM {table} {joined} {time} < 9 ORDER BY {time} LIMIT 1"
        )
        assert [f"({time}<?)" in step for *_, step in plan] == [True]


def test_a_row_that_cannot_be_read_leaves_what_is_overdue_to_the_others(
    local: LocalPorts, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("spoilt", "good"):
        run(local.store.put_header(header(name, **waiting(("timer", START)))))
    change = local.database.change
    change("UPDATE runs SET body = '{\"status\": \"secret\"}' WHERE run_id = 'spoilt'")
    assert [row.run_id for row in run(local.store.overdue_runs(START + 1, 9))] == ["good"]
    assert "secret" not in caplog.text


def test_a_dead_letter_is_new_until_it_is_taken(local: LocalPorts) -> None:
    async def scenario() -> None:
        queue = local.queue
        await queue.send(wake())
        delivery = await take(queue)
        assert not await queue.take(delivery.message_id)
        await queue.reject(delivery, "bad")
        (letter,) = await queue.dead_letters(new=True)
        assert await queue.take(letter.message_id)
        assert not await queue.take(letter.message_id)
        assert await queue.dead_letters(new=True) == ()
        assert await queue.dead_letters() == (letter,)

    run(scenario())


def test_a_file_of_a_version_that_nobody_knows_is_refused(path: Path) -> None:
    with Database(path) as database:
        database.change("PRAGMA user_version = 1")
    with pytest.raises(SchemaMismatch, match="has schema version 1"):
        Database(path)


def test_a_file_of_another_program_is_refused_and_left_alone(path: Path) -> None:
    foreign = sqlite3.connect(path)
    foreign.execute("CREATE TABLE theirs (x)")
    foreign.close()
    with pytest.raises(SchemaMismatch):
        Database(path)
    foreign = sqlite3.connect(path)
    assert foreign.execute("SELECT name FROM sqlite_master").fetchall() == [("theirs",)]
    foreign.close()


def test_what_is_no_database_is_refused(path: Path) -> None:
    path.write_text("no database, and long enough to be looked at as one " * 20)
    with pytest.raises(SchemaMismatch, match="not an SQLite file"):
        Database(path)


def test_many_processes_may_open_a_new_file_at_once(path: Path) -> None:
    said = together(*(other_process("open_file", str(path)) for _ in range(6)))
    assert said == [["opened"]] * 6


def test_a_database_does_not_cross_a_fork(path: Path) -> None:
    assert together(other_process("fork", str(path))) == [["7"]]


# Transactions and errors


def test_a_transaction_that_fails_leaves_nothing(local: LocalPorts) -> None:
    def interrupted() -> None:
        with local.database.writing():
            run(local.store.put_header(header()))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert run(local.store.get_header("run")) is None
    run(local.store.put_header(header()))


def test_a_locked_file_is_a_transient_error(path: Path, local: LocalPorts) -> None:
    with (
        open_ports(path, busy_timeout=1) as other,
        local.database.writing(),
        pytest.raises(TransientError, match="locked"),
    ):
        run(other.store.put_header(header()))


def test_a_full_disk_is_a_transient_error(local: LocalPorts) -> None:
    ((pages,),) = local.database.query("PRAGMA page_count")
    local.database.query(f"PRAGMA max_page_count = {pages + 20}")
    with pytest.raises(TransientError, match="full"):
        run(local.store.append("run", commit(1, fill=300 * 1024)))
    assert run(local.store.load("run")).commits == ()


def test_readers_are_not_held_up_by_a_writer(path: Path, local: LocalPorts) -> None:
    with open_ports(path, busy_timeout=1) as other, local.database.writing():
        run(local.store.put_header(header()))
        assert run(other.store.get_header("run")) is None
        assert run(other.queue.receive()) is None


def test_threads_may_share_one_database(local: LocalPorts) -> None:
    def work(number: int) -> None:
        run_id = f"run{number}"
        for first in range(1, 26):
            assert run(local.store.append(run_id, commit(first)))
            run(local.queue.send(wake(run_id, f"c{first}")))
        assert len(run(local.store.load(run_id)).commits) == 25

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert run(local.queue.depth()) == 200


# The store


@pytest.mark.parametrize("page_limit", [1, 500, 1000, 5000])
def test_a_run_comes_whole_whatever_the_size_of_a_page(
    local: LocalPorts, clock: SkippingClock, page_limit: int
) -> None:
    async def scenario() -> None:
        for n in range(1, 21):
            await local.store.append("run", commit(n))
            await local.store.put_hook(hook(hook_id=f"h{n:02}"))
            await local.store.put_hook(hook("another", hook_id=f"h{n:02}"))
            await local.store.put_step(step_row(step=f"s{n:02}"))
            await local.store.put_step(step_row(run_id="another", step=f"s{n:02}"))
            await local.store.put_inbox(entry(entry_id=f"e{n:02}"))
            await local.store.put_inbox(entry("another", entry_id=f"e{n:02}"))
        small = SqliteStore(local.database, clock, page_limit=page_limit)
        assert await small.load("run") == await local.store.load("run")
        assert len((await small.load("run")).hooks) == 20
        assert len((await small.load("run")).steps) == 20
        assert len((await small.load("run")).inbox) == 20

    run(scenario())


@pytest.mark.parametrize("cursor", [None, write_cursor("runs", Place(START, ("r",)))])
@pytest.mark.parametrize("workflow", [None, "orders"])
@pytest.mark.parametrize("status", [None, RunStatus.FAILED])
def test_listing_runs_reads_an_index_and_never_sorts(
    local: LocalPorts, workflow: str | None, status: RunStatus | None, cursor: str | None
) -> None:
    listing = local.store.list_runs(workflow=workflow, status=status, cursor=cursor)
    plan = plan_of(local, listing)
    assert len(plan) == 1
    assert "USING INDEX runs_by_" in plan[0]
    assert ("workflow=?" in plan[0]) == (workflow is not None)
    assert ("status=?" in plan[0]) == (status is not None)
    assert ("(recency,run_id)>(?,?)" in plan[0]) == (cursor is not None)


@pytest.mark.parametrize("cursor", [None, write_cursor("hooks", Place(START, ("r", "h")))])
@pytest.mark.parametrize("run_id", [None, "run"])
def test_listing_hooks_reads_an_index_and_never_sorts(
    local: LocalPorts, run_id: str | None, cursor: str | None
) -> None:
    plan = plan_of(local, local.store.list_hooks(run_id=run_id, cursor=cursor))
    assert len(plan) == 1
    assert "USING INDEX hooks_pending" in plan[0]
    assert ("run_id=?" in plan[0]) == (run_id is not None)
    assert (">" in plan[0]) == (cursor is not None)


def test_an_expired_checkpoint_is_deleted_by_the_next_call(
    local: LocalPorts, clock: SkippingClock
) -> None:
    async def scenario() -> None:
        await local.store.put_checkpoint(checkpoint())
        await local.store.put_checkpoint(checkpoint(step="later"))
        await local.store.expire_checkpoint("run", "step", START + 1000)
        await local.store.expire_checkpoint("run", "later", START + 1001)
        clock.advance(1000)
        await local.store.expire_checkpoint("run", "another", START)
        assert await local.store.get_checkpoint("run", "step") is None
        assert await local.store.get_checkpoint("run", "later") is not None

    run(scenario())


def test_a_killed_writer_leaves_a_readable_log_without_gaps(path: Path) -> None:
    process = other_process("append", str(path))
    assert process.stdout is not None
    for _ in range(300):
        acknowledged = int(process.stdout.readline())
    process.kill()
    rest = process.stdout.read().split("\n")[:-1]
    process.communicate()
    acknowledged = int(rest[-1]) if rest else acknowledged
    with open_ports(path) as opened:
        commits = run(opened.store.load("run")).commits
        assert [found.first for found in commits] == list(range(1, len(commits) + 1))
        assert len(commits) in (acknowledged, acknowledged + 1)
        assert run(opened.store.append("run", commit(len(commits) + 1)))
        assert opened.database.query("PRAGMA integrity_check") == [("ok",)]


def test_of_two_processes_one_decides_each_hook(path: Path, local: LocalPorts) -> None:
    for n in range(100):
        run(local.store.put_hook(hook(hook_id=f"h{n}")))
    one, other = together(
        other_process("decide", str(path), "one"), other_process("decide", str(path), "other")
    )
    assert len(one) == 100
    assert one == other
    hooks = {row.hook_id: row.decision_id for row in run(local.store.load("run")).hooks}
    assert [hooks[f"h{n}"] for n in range(100)] == one


# The queue


def test_several_processes_handle_each_message_once_and_in_order(
    path: Path, tmp_path: Path, local: LocalPorts
) -> None:
    groups, each = 8, 25
    for n in range(each):
        for group in range(groups):
            run(local.queue.send(wake(f"run{group}", f"g{group}-{n}")))
    said = together(*(other_process("pull", str(path), str(tmp_path)) for _ in range(4)))
    handled = [word for words in said for word in words]
    assert len(handled) == groups * each
    assert set(handled) == {f"g{group}-{n}" for group in range(groups) for n in range(each)}
    for group in range(groups):
        log = (tmp_path / f"g{group}.log").read_text().split()
        assert log == [str(n) for n in range(each)]
    assert run(local.queue.dead_letters()) == ()


def test_a_receipt_ends_with_the_visibility_timeout(
    local: LocalPorts, clock: SkippingClock
) -> None:
    async def scenario() -> None:
        await local.queue.send(wake())
        delivery = await take(local.queue)
        clock.advance(VISIBILITY)
        assert not await local.queue.delete(delivery)
        assert not await local.queue.give_back(delivery, delay=VISIBILITY)
        assert (await take(local.queue)).receive_count == 2

    run(scenario())


def test_the_queue_says_when_to_look_again(local: LocalPorts, clock: SkippingClock) -> None:
    async def scenario() -> None:
        queue = local.queue
        assert await queue.next_visible_at() is None
        await queue.send(wake(cause="c1"))
        await queue.send(wake(cause="c2"))
        assert await queue.next_visible_at() == START
        delivery = await take(queue)
        assert await queue.next_visible_at() == START + VISIBILITY
        assert await queue.give_back(delivery, delay=5000)
        assert await queue.next_visible_at() == START + 5000
        clock.move_to(START + 5000)
        assert await queue.delete(await take(queue))
        assert await queue.next_visible_at() == START + 5000
        assert await queue.depth() == 1

    run(scenario())


def test_depth_counts_what_is_in_flight_and_not_the_dead(local: LocalPorts) -> None:
    async def scenario() -> None:
        for n in range(3):
            await local.queue.send(wake(cause=f"c{n}"))
        delivery = await take(local.queue)
        assert await local.queue.depth() == 3
        await local.queue.reject(delivery, "bad")
        assert await local.queue.depth() == 2

    run(scenario())


def test_a_dead_letter_says_why_and_when(local: LocalPorts, clock: SkippingClock) -> None:
    async def scenario() -> None:
        await local.queue.send(wake())
        received = set()
        for _ in range(MAX_RECEIVES):
            received.add((await take(local.queue)).message_id)
            clock.advance(VISIBILITY)
        assert await local.queue.receive() is None
        (letter,) = await local.queue.dead_letters()
        assert received == {letter.message_id}
        assert (letter.run_id, letter.receive_count) == ("run", MAX_RECEIVES)
        assert letter.reason == "received 3 times and never deleted"
        assert (letter.sent_at, letter.died_at) == (START, START + 3 * VISIBILITY)

    run(scenario())


def test_a_redriven_letter_is_a_new_message_at_the_end_of_its_group(local: LocalPorts) -> None:
    async def scenario() -> None:
        await local.queue.send(wake(cause="c1"))
        await local.queue.send(wake(cause="c2"))
        dead = await take(local.queue)
        await local.queue.reject(dead, "bad")
        assert await local.queue.redrive(dead.message_id)
        assert not await local.queue.redrive(dead.message_id)
        assert await local.queue.dead_letters() == ()
        other = await take(local.queue)
        assert other.body != dead.body
        assert await local.queue.delete(other)
        again = await take(local.queue)
        assert (again.body, again.receive_count) == (dead.body, 1)
        assert again.message_id != dead.message_id
        assert not await local.queue.delete(dead)

    run(scenario())


def test_a_message_above_one_megabyte_is_refused(local: LocalPorts) -> None:
    with pytest.raises(ItemTooLarge, match="message to run 'run'"):
        run(local.queue.send(wake(cause="x" * 1024 * 1024)))
    assert run(local.queue.depth()) == 0


def test_what_was_sent_is_remembered_for_no_longer_than_needed(
    local: LocalPorts, clock: SkippingClock
) -> None:
    for n in range(10):
        run(local.queue.send(wake(cause=f"c{n}")))
    clock.advance(300_000)
    run(local.queue.send(wake(cause="last")))
    assert local.database.query("SELECT count(*) FROM sent_bodies") == [(1,)]


# Timers


class _Dying(SqliteQueue):
    """A queue in whose process the power goes off at the second message."""

    puts = 0

    def put(self, message: Message) -> None:
        super().put(message)
        self.puts += 1
        if self.puts == 2:
            raise SystemExit


def test_a_crash_while_timers_fire_loses_none(local: LocalPorts, clock: SkippingClock) -> None:
    for n in range(3):
        run(local.timers.start(f"run{n}", "wait", 1, START))
    with pytest.raises(SystemExit):
        run(local.timers.fire_due(_Dying(local.database, clock, SeededIds(1))))
    assert run(local.queue.depth()) == 0
    assert run(local.timers.next_due()) == START
    assert run(local.timers.fire_due(local.queue)) == 3
    assert run(local.queue.depth()) == 3
    assert run(local.timers.next_due()) is None


def test_several_processes_fire_each_timer_once(path: Path, local: LocalPorts) -> None:
    for n in range(50):
        run(local.timers.start(f"run{n}", "wait", 1, START))
    said = together(*(other_process("fire", str(path)) for _ in range(3)))
    assert sorted(int(words[0]) for words in said) == [0, 0, 50]
    assert run(local.queue.depth()) == 50


def test_timers_fire_only_into_their_own_database(local: LocalPorts) -> None:
    with (
        open_ports(":memory:") as other,
        pytest.raises(ValueError, match="own database"),
    ):
        run(local.timers.fire_due(other.queue))


def test_the_next_due_timer_is_the_earliest(local: LocalPorts) -> None:
    async def scenario() -> None:
        await local.timers.start("run", "late", 1, START + 9)
        await local.timers.start("run", "early", 1, START + 2)
        assert await local.timers.next_due() == START + 2
        await local.timers.cancel("run", "early", 1)
        assert await local.timers.next_due() == START + 9

    run(scenario())


# Clocks and ids


def test_a_skipping_clock_stands_still_and_never_goes_back() -> None:
    clock = SkippingClock(START)
    clock.advance(5)
    clock.move_to(START)
    assert clock.now() == START + 5
    clock.move_to(START + 9)
    assert clock.now() == START + 9
    with pytest.raises(ValueError, match="moved back"):
        clock.advance(-1)


def test_a_sleeper_wakes_when_the_clock_has_been_moved_far_enough() -> None:
    async def scenario() -> None:
        clock = SkippingClock(START)
        await clock.sleep_until(START)
        late, early = (asyncio.create_task(clock.sleep_until(START + ms)) for ms in (9, 5))
        await asyncio.sleep(0)
        clock.advance(4)
        await asyncio.sleep(0)
        assert not early.done()
        await asyncio.to_thread(clock.advance, 1)
        await early
        assert not late.done()
        late.cancel()
        await asyncio.wait([late])

    run(scenario())


def test_the_system_clock_sleeps_until_a_time_has_come() -> None:
    clock = SystemClock()
    due = clock.now() + 3
    run(clock.sleep_until(due))
    assert clock.now() >= due


def test_the_system_clock_counts_milliseconds_of_this_century() -> None:
    assert 1_700_000_000_000 < SystemClock().now() < 5_000_000_000_000


def test_ids_are_32_hex_digits_and_a_seed_repeats_them() -> None:
    one, same, other, system = SeededIds(1), SeededIds(1), SeededIds(2), SystemIds()
    ids = [one.new_id() for _ in range(50)]
    assert ids == [same.new_id() for _ in range(50)]
    found = {*ids, *(other.new_id() for _ in range(50)), *(system.new_id() for _ in range(50))}
    assert len(found) == 150
    assert all(len(name) == 32 and int(name, 16) >= 0 for name in found)


def test_nothing_of_the_run_is_left_out_of_the_file(path: Path, local: LocalPorts) -> None:
    async def scenario() -> None:
        await local.store.put_checkpoint(checkpoint())
        await local.store.put_chunk(chunk(1))
        await local.blobs.put("h", b"data")
        await local.timers.start("run", "wait", 1, START)
        with open_ports(path) as other:
            assert await other.store.get_checkpoint("run", "step") == checkpoint()
            assert await other.store.get_chunks("run", "step") == (chunk(1),)
            assert await other.blobs.get("h") == b"data"
            assert await other.timers.next_due() == START

    run(scenario())
