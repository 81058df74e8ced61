"""The `Store` port, sentence by sentence, as strict as DynamoDB."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from stepwell.core.cursors import Place, write_cursor
from stepwell.core.events import Commit
from stepwell.core.records import (
    Attention,
    Decision,
    Fork,
    HookRow,
    HookStatus,
    Parent,
    RetryRequest,
    RunHeader,
    RunStatus,
    Wait,
)
from stepwell.engine.ports import ItemTooLarge, RunRows, Store, TransientError
from stepwell.errors import Failure
from tests.contract.given import (
    NASTY_IDS,
    START,
    Deployment,
    checkpoint,
    chunk,
    commit,
    definition,
    entry,
    header,
    hook,
    run,
    step_row,
)

KB = 1024


def received(decision_id: str = "d1", **fields: Any) -> Decision:
    """A decision that answers a hook."""
    return Decision(
        status=HookStatus.RECEIVED,
        decision_id=decision_id,
        decided_at=START + 5,
        **({"payload": "true"} | fields),
    )


def expired() -> Decision:
    """A decision that ends a hook by its deadline."""
    return Decision(status=HookStatus.EXPIRED, decision_id="timer", decided_at=START + 9)


# Loading


def test_a_run_that_is_not_there_loads_empty(deployment: Deployment) -> None:
    assert run(deployment.store.load("run")) == RunRows(header=None, commits=(), hooks=(), steps=())


def test_load_brings_header_log_hooks_and_steps_as_they_were_put(deployment: Deployment) -> None:
    first, second = commit(1, events=3), commit(4, events=2, turn="t2")
    left, right = step_row(step="s1"), step_row(step="s2", outcome="[]")
    one = hook(hook_id="h1", question="Shall we?")
    two = hook(hook_id="h2", step="step", schema='{"type":"object"}')
    first_in, second_in = entry(entry_id="e1"), entry(entry_id="e2", actor="Ada", payload="[1]")

    async def scenario() -> RunRows:
        store = deployment.store
        await store.put_header(header())
        assert await store.append("run", first)
        assert await store.append("run", second)
        await store.put_hook(one)
        await store.put_hook(two)
        await store.put_step(left)
        await store.put_step(right)
        await store.put_inbox(first_in)
        await store.put_inbox(second_in)
        return await store.load("run")

    rows = run(scenario())
    assert rows.header == header()
    assert sorted(rows.steps, key=lambda row: row.step) == [left, right]
    assert sorted(rows.inbox, key=lambda row: row.entry_id) == [first_in, second_in]
    assert rows.commits == (first, second)
    assert sorted(rows.hooks, key=lambda row: row.hook_id) == [one, two]


def test_load_keeps_log_order_beyond_numbers_of_one_width(deployment: Deployment) -> None:
    firsts = [1, 2, 9, 10, 11, 99, 100, 999_999, 1_000_000]

    async def scenario() -> RunRows:
        for first in reversed(firsts):
            turn = f"t{max(firsts) - first:07}"  # sorts the other way round
            assert await deployment.store.append("run", commit(first, turn=turn))
        return await deployment.store.load("run")

    assert [found.first for found in run(scenario()).commits] == firsts


def test_a_history_of_three_megabytes_loads_whole(deployment: Deployment) -> None:
    log = tuple(commit(n, fill=100 * KB) for n in range(1, 31))
    hooks = tuple(hook(hook_id=f"h{n:02}", schema="s" * 100 * KB) for n in range(30))
    inbox = tuple(entry(entry_id=f"e{n:02}", payload="p" * 100 * KB) for n in range(30))
    steps = tuple(step_row(step=f"s{n:02}", outcome="o" * 100 * KB) for n in range(30))

    async def scenario() -> RunRows:
        for one in log:
            assert await deployment.store.append("run", one)
        for row in hooks:
            await deployment.store.put_hook(row)
        for one_step in steps:
            await deployment.store.put_step(one_step)
        for each in inbox:
            await deployment.store.put_inbox(each)
        return await deployment.store.load("run")

    rows = run(scenario())
    assert rows.commits == log
    assert tuple(sorted(rows.hooks, key=lambda row: row.hook_id)) == hooks
    assert tuple(sorted(rows.steps, key=lambda row: row.step)) == steps
    assert tuple(sorted(rows.inbox, key=lambda row: row.entry_id)) == inbox


def test_checkpoints_and_output_stay_out_of_a_load(deployment: Deployment) -> None:
    async def scenario() -> RunRows:
        await deployment.store.put_checkpoint(checkpoint())
        await deployment.store.put_chunk(chunk(1))
        return await deployment.store.load("run")

    assert run(scenario()) == RunRows(header=None, commits=(), hooks=(), steps=())


def test_runs_of_odd_ids_do_not_see_each_other(deployment: Deployment) -> None:
    async def scenario() -> None:
        store = deployment.store
        for number, run_id in enumerate(NASTY_IDS):
            await store.put_header(header(run_id, seed=f"s{number}"))
            assert await store.append(run_id, commit(1, turn=f"t{number}"))
            await store.put_hook(hook(run_id, name=f"n{number}"))
            await store.put_step(step_row(run_id=run_id, order=number))
            await store.put_inbox(entry(run_id, sent_at=number))
        for number, run_id in enumerate(NASTY_IDS):
            assert await store.load(run_id) == RunRows(
                header=header(run_id, seed=f"s{number}"),
                commits=(commit(1, turn=f"t{number}"),),
                hooks=(hook(run_id, name=f"n{number}"),),
                steps=(step_row(run_id=run_id, order=number),),
                inbox=(entry(run_id, sent_at=number),),
            )

    run(scenario())


def test_odd_ids_within_a_run_do_not_touch_each_other(deployment: Deployment) -> None:
    async def scenario() -> None:
        store = deployment.store
        for number, one in enumerate(NASTY_IDS):
            await store.put_hook(hook(hook_id=one, name=f"n{number}"))
            await store.put_step(step_row(step=one, order=number))
            await store.put_inbox(entry(entry_id=one, sent_at=number))
            assert await store.put_checkpoint(checkpoint(step=one, save_id=f"s{number}"))
            assert await store.put_chunk(chunk(1, step=one, value=f"{number}"))
        rows = await store.load("run")
        assert {row.entry_id: row.sent_at for row in rows.inbox} == {
            one: number for number, one in enumerate(NASTY_IDS)
        }
        assert {row.hook_id: row.name for row in rows.hooks} == {
            one: f"n{number}" for number, one in enumerate(NASTY_IDS)
        }
        assert {row.step: row.order for row in rows.steps} == {
            one: number for number, one in enumerate(NASTY_IDS)
        }
        for number, one in enumerate(NASTY_IDS):
            found = await store.get_checkpoint("run", one)
            assert found == checkpoint(step=one, save_id=f"s{number}")
            assert await store.get_chunks("run", one) == (chunk(1, step=one, value=f"{number}"),)

    run(scenario())


# Headers


def test_a_header_comes_back_with_all_its_fields(deployment: Deployment) -> None:
    full = header(
        status=RunStatus.SUSPENDED,
        last_event=7,
        result='{"a":"é"}',
        error=Failure("ValueError", "no", traceback="t", cause=Failure("KeyError", "k")),
        waiting=(Wait(kind="hook", id="h", name="approve", since=START, until=START + 1),),
        attention=Attention(kind="BLOCKED", reason="code", since=START),
        cancel_requested=True,
        idempotency_key="key",
        tags=("a", "b"),
        parent=Parent(run_id="above", child="child:1", depth=2),
        continued_from="before",
        continued_to="after",
    )
    run(deployment.store.put_header(full))
    assert run(deployment.store.get_header("run")) == full


def test_no_header_is_none(deployment: Deployment) -> None:
    assert run(deployment.store.get_header("run")) is None


def test_a_second_put_returns_the_header_that_stands(deployment: Deployment) -> None:
    async def scenario() -> None:
        first, second = header(input_digest="d1"), header(input_digest="d2")
        assert await deployment.store.put_header(first) == first
        assert await deployment.store.put_header(second) == first
        assert await deployment.store.get_header("run") == first

    run(scenario())


def test_an_update_replaces_a_header_that_is_not_ahead(deployment: Deployment) -> None:
    async def scenario() -> None:
        await deployment.store.put_header(header(last_event=3))
        for update in (
            header(last_event=3, status=RunStatus.SUSPENDED),
            header(last_event=5, status=RunStatus.COMPLETED, result="1", updated_at=START + 9),
        ):
            assert await deployment.store.update_header(update)
            assert await deployment.store.get_header("run") == update

    run(scenario())


def test_a_header_never_goes_back_to_a_lower_number(deployment: Deployment) -> None:
    ended = header(last_event=5, status=RunStatus.COMPLETED, result="1")

    async def scenario() -> None:
        await deployment.store.put_header(ended)
        assert not await deployment.store.update_header(
            header(last_event=4, status=RunStatus.SUSPENDED)
        )
        assert await deployment.store.get_header("run") == ended

    run(scenario())


def test_an_update_without_a_header_does_nothing(deployment: Deployment) -> None:
    async def scenario() -> None:
        assert not await deployment.store.update_header(header())
        assert await deployment.store.get_header("run") is None

    run(scenario())


def test_an_update_keeps_a_cancel_flag_that_stands(deployment: Deployment) -> None:
    async def scenario() -> None:
        await deployment.store.put_header(header())
        assert await deployment.store.request_cancel("run")
        update = header(last_event=2, status=RunStatus.SUSPENDED)
        assert await deployment.store.update_header(update)
        flagged = replace(update, cancel_requested=True)
        assert await deployment.store.get_header("run") == flagged
        assert (await deployment.store.load("run")).header == flagged
        assert (await deployment.store.list_runs()).items == (flagged,)

    run(scenario())


def test_an_update_that_reopens_a_run_takes_the_cancel_flag_away(deployment: Deployment) -> None:
    async def scenario() -> None:
        await deployment.store.put_header(header())
        assert await deployment.store.request_cancel("run")
        reopened = header(last_event=2, status=RunStatus.SUSPENDED)
        assert await deployment.store.update_header(reopened, reopens=True)
        assert await deployment.store.get_header("run") == reopened
        assert (await deployment.store.load("run")).header == reopened

    run(scenario())


def test_a_header_keeps_what_is_asked_of_its_run(deployment: Deployment) -> None:
    async def scenario() -> None:
        kept = replace(
            header(),
            retry=RetryRequest(request_id="r1", after=7, actor="Ada"),
            forked_from=Fork(run_id="other", event=3, started_at=START, edits='{"2":"1"}'),
            attention=Attention(
                kind="PAUSED",
                reason="a look first",
                since=START,
                request_id="p1",
                actor="Ada",
                before=Attention(kind="STUCK", reason="r", since=START, message="{}"),
            ),
        )
        await deployment.store.put_header(kept)
        assert await deployment.store.get_header("run") == kept
        assert (await deployment.store.list_runs(attention="PAUSED")).items == (kept,)
        bare = replace(header(), retry=None, attention=None)
        assert await deployment.store.update_header(bare, over=kept)
        assert await deployment.store.get_header("run") == bare

    run(scenario())


def test_an_update_may_set_the_cancel_flag(deployment: Deployment) -> None:
    async def scenario() -> RunHeader | None:
        await deployment.store.put_header(header())
        assert await deployment.store.update_header(header(cancel_requested=True))
        return await deployment.store.get_header("run")

    assert run(scenario()) == header(cancel_requested=True)


def test_a_cancel_request_needs_a_header(deployment: Deployment) -> None:
    async def scenario() -> None:
        assert not await deployment.store.request_cancel("run")
        assert await deployment.store.get_header("run") is None
        await deployment.store.put_header(header(status=RunStatus.COMPLETED))
        assert await deployment.store.request_cancel("run")
        assert await deployment.store.request_cancel("run")

    run(scenario())


# The log


def test_a_number_is_taken_once(deployment: Deployment) -> None:
    async def scenario() -> tuple[Commit, ...]:
        assert await deployment.store.append("run", commit(1, turn="holder"))
        assert not await deployment.store.append("run", commit(1, turn="zombie"))
        return (await deployment.store.load("run")).commits

    assert run(scenario()) == (commit(1, turn="holder"),)


def test_an_own_write_is_recognised_and_changes_nothing(deployment: Deployment) -> None:
    async def scenario() -> tuple[Commit, ...]:
        assert await deployment.store.append("run", commit(1, turn="t1", number=4))
        assert await deployment.store.append("run", commit(1, turn="t1", number=4, events=2))
        return (await deployment.store.load("run")).commits

    assert run(scenario()) == (commit(1, turn="t1", number=4),)


def test_another_commit_of_the_same_turn_is_no_own_write(deployment: Deployment) -> None:
    async def scenario() -> None:
        assert await deployment.store.append("run", commit(1, turn="t1", number=1))
        assert not await deployment.store.append("run", commit(1, turn="t1", number=2))

    run(scenario())


def test_a_commit_without_events_is_refused(deployment: Deployment) -> None:
    with pytest.raises(ValueError, match="no events"):
        run(deployment.store.append("run", Commit(first=1, turn="t", number=1, events=())))
    assert run(deployment.store.load("run")).commits == ()


def test_of_many_writers_one_wins_each_number(deployment: Deployment) -> None:
    def write(turn: int) -> list[bool]:
        async def scenario() -> list[bool]:
            return [
                await deployment.store.append("run", commit(first, turn=f"t{turn}"))
                for first in range(1, 51)
            ]

        return run(scenario())

    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(write, range(8)))
    assert [sum(wins) for wins in zip(*outcomes, strict=True)] == [1] * 50


# Hooks


def test_a_hook_comes_back_with_all_its_fields(deployment: Deployment) -> None:
    full = hook(
        step="step#1",
        expires_at=START + 1,
        due_at=START + 2,
        schema='{"type":"object"}',
        status=HookStatus.RECEIVED,
        decision_id="d1",
        payload='"é"',
        decided_at=START + 3,
        actor="ann",
    )
    assert run(deployment.store.put_hook(full)) == full
    assert run(deployment.store.get_hook("run", "hook")) == full


def test_no_hook_is_none(deployment: Deployment) -> None:
    assert run(deployment.store.get_hook("run", "hook")) is None


def test_a_second_put_adopts_the_row_that_stands(deployment: Deployment) -> None:
    async def scenario() -> None:
        await deployment.store.put_hook(hook(key_id="k1"))
        decided = await deployment.store.decide_hook("run", "hook", received())
        assert decided is not None
        assert await deployment.store.put_hook(hook(key_id="k2")) == decided
        assert await deployment.store.get_hook("run", "hook") == decided

    run(scenario())


def test_a_decision_turns_a_pending_row(deployment: Deployment) -> None:
    async def scenario() -> HookRow | None:
        await deployment.store.put_hook(hook())
        return await deployment.store.decide_hook("run", "hook", received(actor="ann"))

    decided = hook(
        status=HookStatus.RECEIVED,
        decision_id="d1",
        decided_at=START + 5,
        payload="true",
        actor="ann",
    )
    assert run(scenario()) == decided
    assert run(deployment.store.get_hook("run", "hook")) == decided
    assert run(deployment.store.load("run")).hooks == (decided,)


@pytest.mark.parametrize("late", [received("d2", payload="false"), expired()])
def test_whoever_loses_a_decision_reads_what_the_winner_wrote(
    deployment: Deployment, late: Decision
) -> None:
    async def scenario() -> None:
        await deployment.store.put_hook(hook())
        won = await deployment.store.decide_hook("run", "hook", received("d1"))
        assert won is not None
        assert await deployment.store.decide_hook("run", "hook", late) == won
        assert await deployment.store.get_hook("run", "hook") == won

    run(scenario())


def test_deciding_what_is_not_there_makes_no_row(deployment: Deployment) -> None:
    async def scenario() -> None:
        assert await deployment.store.decide_hook("run", "hook", received()) is None
        assert await deployment.store.get_hook("run", "hook") is None

    run(scenario())


def test_of_eight_threads_one_decides(deployment: Deployment) -> None:
    run(deployment.store.put_hook(hook()))

    def decide(number: int) -> HookRow | None:
        return run(deployment.store.decide_hook("run", "hook", received(f"d{number}")))

    with ThreadPoolExecutor(8) as pool:
        seen = set(pool.map(decide, range(64)))
    assert seen == {run(deployment.store.get_hook("run", "hook"))}


# Checkpoints


def test_the_last_checkpoint_saved_stands(deployment: Deployment) -> None:
    async def scenario() -> None:
        store = deployment.store
        assert await store.get_checkpoint("run", "step") is None
        for saved in (
            checkpoint(last_event=3, save_id="s1", value="1"),
            checkpoint(last_event=3, save_id="s2", value="2", answers=("h1", "h2"), output=4),
            checkpoint(last_event=8, save_id="s3", value="3"),
        ):
            assert await store.put_checkpoint(saved)
            assert await store.get_checkpoint("run", "step") == saved

    run(scenario())


def test_a_checkpoint_of_an_older_writer_is_not_put(deployment: Deployment) -> None:
    async def scenario() -> None:
        current = checkpoint(last_event=8, save_id="current")
        assert await deployment.store.put_checkpoint(current)
        assert not await deployment.store.put_checkpoint(checkpoint(last_event=7, save_id="old"))
        assert await deployment.store.get_checkpoint("run", "step") == current

    run(scenario())


def test_a_checkpoint_stays_until_it_expires(deployment: Deployment) -> None:
    async def scenario() -> None:
        store = deployment.store
        await store.expire_checkpoint("run", "step", START)  # there is none: nothing comes of it
        assert await store.get_checkpoint("run", "step") is None
        await store.put_checkpoint(checkpoint())
        await store.put_checkpoint(checkpoint(step="other"))
        await store.expire_checkpoint("run", "step", START + 1000)
        await store.expire_checkpoint("run", "other", START + 2000)
        assert await store.get_checkpoint("run", "step") == checkpoint()

    run(scenario())


def test_a_checkpoint_put_after_one_that_expires_stays(deployment: Deployment) -> None:
    async def scenario() -> None:
        store = deployment.store
        await store.put_checkpoint(checkpoint(save_id="s1"))
        await store.expire_checkpoint("run", "step", START)
        assert await store.put_checkpoint(checkpoint(save_id="s2"))
        await store.expire_checkpoint("run", "another", START)  # whoever calls may clear away
        assert await store.get_checkpoint("run", "step") == checkpoint(save_id="s2")

    run(scenario())


def test_a_checkpoint_that_expires_still_fences_an_older_writer(deployment: Deployment) -> None:
    async def scenario() -> None:
        store = deployment.store
        await store.put_checkpoint(checkpoint(last_event=8))
        await store.expire_checkpoint("run", "step", START + 1000)
        assert not await store.put_checkpoint(checkpoint(last_event=7, save_id="old"))

    run(scenario())


# Dispatched steps


def test_a_step_comes_back_with_all_its_fields(deployment: Deployment) -> None:
    full = step_row(
        order=7, claim="m1/3", until=START + 5, cancelled=True, outcome='[{"type":"é"}]'
    )
    assert run(deployment.store.put_step(full)) == full
    assert run(deployment.store.get_step("run", "step")) == full


def test_no_step_is_none(deployment: Deployment) -> None:
    assert run(deployment.store.get_step("run", "step")) is None


def test_a_revision_stands_only_on_the_one_before(deployment: Deployment) -> None:
    claimed = step_row(2, claim="m1", until=START + 5)
    done = step_row(3, outcome="[]")

    async def scenario() -> None:
        store = deployment.store
        for row in (step_row(1), claimed, done):
            assert await store.put_step(row) == row
            assert await store.get_step("run", "step") == row
        for stale in (step_row(1, order=9), step_row(2, claim="m2"), step_row(3, claim="m2")):
            assert await store.put_step(stale) == done
        assert await store.put_step(step_row(5)) == done
        assert await store.get_step("run", "step") == done
        assert (await store.load("run")).steps == (done,)

    run(scenario())


def test_an_entry_is_put_once_and_whoever_loses_adopts_it(deployment: Deployment) -> None:
    other = entry(payload="false", sent_at=entry().sent_at + 1, actor="Ada")

    async def scenario() -> None:
        assert await deployment.store.put_inbox(entry()) == entry()
        assert await deployment.store.put_inbox(other) == entry()
        assert await deployment.store.put_inbox(entry()) == entry()
        assert (await deployment.store.load("run")).inbox == (entry(),)

    run(scenario())


def test_a_step_put_again_is_recognised(deployment: Deployment) -> None:
    async def scenario() -> None:
        for row in (step_row(1), step_row(2, claim="m1")):
            assert await deployment.store.put_step(row) == row
            assert await deployment.store.put_step(row) == row

    run(scenario())


def test_a_revision_that_stands_on_nothing_is_not_put(deployment: Deployment) -> None:
    with pytest.raises(TransientError, match="deleted"):
        run(deployment.store.put_step(step_row(2)))
    assert run(deployment.store.get_step("run", "step")) is None


def test_of_many_writers_one_puts_each_revision_of_a_step(deployment: Deployment) -> None:
    def claim(number: int) -> list[bool]:
        async def scenario() -> list[bool]:
            rows = [step_row(revision, claim=f"m{number}") for revision in range(1, 26)]
            return [await deployment.store.put_step(row) == row for row in rows]

        return run(scenario())

    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(claim, range(8)))
    assert [sum(wins) for wins in zip(*outcomes, strict=True)] == [1] * 25
    last = run(deployment.store.get_step("run", "step"))
    assert last is not None
    assert last.revision == 25


# Output


def test_an_output_row_is_put_once(deployment: Deployment) -> None:
    async def scenario() -> None:
        assert await deployment.store.put_chunk(chunk(1))
        assert not await deployment.store.put_chunk(chunk(1, value='"other"'))
        assert await deployment.store.get_chunks("run", "step") == (chunk(1),)

    run(scenario())


def test_an_output_row_put_again_is_recognised(deployment: Deployment) -> None:
    async def scenario() -> None:
        for row in (chunk(1), chunk(2, number=0, value=None), chunk(3, last_event=4)):
            assert await deployment.store.put_chunk(row)
            assert await deployment.store.put_chunk(row)
        assert len(await deployment.store.get_chunks("run", "step")) == 3

    run(scenario())


@pytest.mark.parametrize(
    "other",
    [{"value": '"x"'}, {"value": None}, {"at": START + 1}, {"last_event": 9}, {"number": 2}],
)
def test_an_output_row_of_another_writer_is_no_own_write(
    deployment: Deployment, other: dict[str, Any]
) -> None:
    async def scenario() -> None:
        assert await deployment.store.put_chunk(chunk(1))
        assert not await deployment.store.put_chunk(chunk(1, **other))
        assert await deployment.store.get_chunks("run", "step") == (chunk(1),)

    run(scenario())


def test_output_comes_in_order_from_where_a_reader_stands(deployment: Deployment) -> None:
    rows = [chunk(n) for n in range(1, 13)]

    async def scenario() -> None:
        store = deployment.store
        for row in reversed(rows):
            assert await store.put_chunk(row)
        await store.put_chunk(chunk(1, step="other"))
        await store.put_chunk(chunk(1, run_id="other"))
        assert await store.get_chunks("run", "step") == tuple(rows)
        assert await store.get_chunks("run", "step", after=9) == tuple(rows[9:])
        assert await store.get_chunks("run", "step", after=3, limit=2) == tuple(rows[3:5])
        assert await store.get_chunks("run", "step", after=12) == ()

    run(scenario())


def test_a_reset_mark_is_a_row_like_others(deployment: Deployment) -> None:
    mark = chunk(2, number=0, value=None)

    async def scenario() -> None:
        await deployment.store.put_chunk(chunk(1))
        assert await deployment.store.put_chunk(mark)
        assert await deployment.store.get_chunks("run", "step", after=1) == (mark,)

    run(scenario())


# Limits


async def _append_large(store: Store, size: int) -> object:
    return await store.append("run", commit(1, fill=size))


async def _put_header_large(store: Store, size: int) -> object:
    return await store.put_header(header(input='"' + "x" * size + '"'))


async def _update_header_large(store: Store, size: int) -> object:
    await store.put_header(header())
    return await store.update_header(header(result="x" * size))


async def _put_hook_large(store: Store, size: int) -> object:
    return await store.put_hook(hook(schema="x" * size))


async def _decide_hook_large(store: Store, size: int) -> object:
    await store.put_hook(hook(schema="x" * (size // 2)))
    return await store.decide_hook("run", "hook", received(payload="x" * (size // 2)))


async def _put_checkpoint_large(store: Store, size: int) -> object:
    return await store.put_checkpoint(checkpoint(value="x" * size))


async def _put_step_large(store: Store, size: int) -> object:
    return await store.put_step(step_row(outcome="x" * size))


async def _replace_step_large(store: Store, size: int) -> object:
    await store.put_step(step_row(1))
    return await store.put_step(step_row(2, outcome="x" * size))


async def _put_inbox_large(store: Store, size: int) -> object:
    return await store.put_inbox(entry(payload="x" * size))


async def _publish_large(store: Store, size: int) -> object:
    await store.publish(definition(input_schema="x" * size))
    return True


async def _put_chunk_large(store: Store, size: int) -> object:
    return await store.put_chunk(chunk(1, value="x" * size))


LARGE_WRITES = [
    _append_large,
    _put_header_large,
    _update_header_large,
    _put_hook_large,
    _decide_hook_large,
    _put_checkpoint_large,
    _put_chunk_large,
    _put_step_large,
    _replace_step_large,
    _put_inbox_large,
    _publish_large,
]


@pytest.mark.parametrize("write", LARGE_WRITES)
def test_an_item_up_to_400_kb_is_taken(deployment: Deployment, write: Any) -> None:
    assert run(write(deployment.store, 398 * KB))


@pytest.mark.parametrize("write", LARGE_WRITES)
def test_an_item_above_400_kb_is_refused_and_changes_nothing(
    deployment: Deployment, write: Any
) -> None:
    store = deployment.store
    with pytest.raises(ItemTooLarge) as caught:
        run(write(store, 401 * KB))
    assert caught.value.size > caught.value.limit
    rows = run(store.load("run"))
    assert rows.commits == ()
    assert rows.header in (None, header())
    assert all(row.status is HookStatus.PENDING for row in rows.hooks)
    assert all(row == step_row(1) for row in rows.steps)
    assert run(store.get_checkpoint("run", "step")) is None
    assert run(store.get_definition("orders")) is None
    assert run(store.get_chunks("run", "step")) == ()


def test_the_limit_counts_bytes_and_not_letters(deployment: Deployment) -> None:
    with pytest.raises(ItemTooLarge):
        run(deployment.store.put_chunk(chunk(1, value="é" * 201 * KB)))


# Definitions


def test_a_definition_comes_back_with_all_its_fields(deployment: Deployment) -> None:
    full = definition(
        result_schema='{"type":"string"}', description="Says é.", signals='{"said":{"a":null}}'
    )
    run(deployment.store.publish(full))
    assert run(deployment.store.get_definition("orders")) == full


def test_no_definition_is_none(deployment: Deployment) -> None:
    assert run(deployment.store.get_definition("orders")) is None


def test_a_workflow_that_has_only_had_a_run_is_not_defined(deployment: Deployment) -> None:
    async def scenario() -> None:
        await deployment.store.put_header(header(workflow="orders"))
        assert await deployment.store.get_definition("orders") is None
        assert (await deployment.store.list_definitions()).items == ()

    run(scenario())


def test_the_current_definition_moves_to_a_newer_version_only(deployment: Deployment) -> None:
    async def scenario() -> None:
        store = deployment.store
        for version, current in [("9", "9"), ("10", "10"), ("9", "10"), ("2", "10"), ("11", "11")]:
            await store.publish(definition(version=version))
            assert await store.get_definition("orders") == definition(version=current)
        assert (await store.list_definitions()).items == (definition(version="11"),)

    run(scenario())


def test_of_one_version_the_definition_published_last_is_current(deployment: Deployment) -> None:
    first = definition(digest="d1", published_at=START)
    second = definition(digest="d2", published_at=START + 5)
    same_time = definition(digest="d3", published_at=START + 5)

    async def scenario() -> None:
        store = deployment.store
        await store.publish(first)
        await store.publish(second)
        assert await store.get_definition("orders") == second
        await store.publish(first)  # sent late
        assert await store.get_definition("orders") == second
        await store.publish(same_time)
        assert await store.get_definition("orders") == same_time
        again = replace(first, published_at=START + 9)  # an older deployment is back
        await store.publish(again)
        assert await store.get_definition("orders") == again

    run(scenario())


def test_publishing_what_is_current_changes_nothing(deployment: Deployment) -> None:
    async def scenario() -> None:
        await deployment.store.publish(definition())
        await deployment.store.publish(definition(published_at=START + 5))
        assert await deployment.store.get_definition("orders") == definition()

    run(scenario())


def test_of_many_versions_published_at_once_the_newest_is_current(deployment: Deployment) -> None:
    def publish(version: int) -> None:
        run(deployment.store.publish(definition(version=str(version))))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(publish, [n * 7 % 32 for n in range(32)]))
    assert run(deployment.store.get_definition("orders")) == definition(version="31")


def test_definitions_of_odd_names_do_not_touch_each_other(deployment: Deployment) -> None:
    async def scenario() -> None:
        for name in NASTY_IDS:
            await deployment.store.publish(definition(name, description=name))
            await deployment.store.publish(definition(name, "0", digest="current"))
        for name in NASTY_IDS:
            found = await deployment.store.get_definition(name)
            assert found == definition(name, description=name)
        page = await deployment.store.list_definitions()
        assert sorted(item.name for item in page.items) == sorted(NASTY_IDS)

    run(scenario())


@pytest.mark.parametrize("limit", [1, 2, 3, 50])
def test_definitions_list_by_name(deployment: Deployment, limit: int) -> None:
    async def scenario() -> None:
        store = deployment.store
        for name in ("b", "é", "a", "B", "a.b", "a_b"):
            await store.publish(definition(name))
            await store.put_header(header(f"run of {name}", workflow=f"{name} never published"))
        found: list[str] = []
        cursor = None
        while True:
            page = await store.list_definitions(limit=limit, cursor=cursor)
            assert len(page.items) <= limit
            found += [item.name for item in page.items]
            cursor = page.cursor
            if cursor is None:
                break
        assert found == ["B", "a", "a.b", "a_b", "b", "é"]

    run(scenario())


# Lists


async def _all_runs(
    store: Store, limit: int, *, cursor: str | None = None, **filters: Any
) -> list[str]:
    """Ids of all runs, page after page; checks that no page is longer than asked."""
    found: list[str] = []
    while True:
        page = await store.list_runs(limit=limit, cursor=cursor, **filters)
        assert len(page.items) <= limit
        found += [item.run_id for item in page.items]
        cursor = page.cursor
        if cursor is None:
            return found


async def _all_hooks(store: Store, limit: int, **filters: Any) -> list[tuple[str, str]]:
    """Run and hook ids of all pending hooks, page after page."""
    found: list[tuple[str, str]] = []
    cursor = None
    while True:
        page = await store.list_hooks(limit=limit, cursor=cursor, **filters)
        assert len(page.items) <= limit
        found += [(item.run_id, item.hook_id) for item in page.items]
        cursor = page.cursor
        if cursor is None:
            return found


def test_nothing_lists_as_one_empty_page(deployment: Deployment) -> None:
    runs, hooks = run(deployment.store.list_runs()), run(deployment.store.list_hooks())
    assert (runs.items, runs.cursor) == ((), None)
    assert (hooks.items, hooks.cursor) == ((), None)


@pytest.mark.parametrize("limit", [1, 2, 3, 50])
def test_runs_list_newest_first_and_ties_by_id(deployment: Deployment, limit: int) -> None:
    times = {"d": 5, "b": 7, "a": 5, "é#/": 7, "c": 9, "e": -3}

    async def scenario() -> list[str]:
        for run_id, time in times.items():
            await deployment.store.put_header(header(run_id, created_at=time))
        return await _all_runs(deployment.store, limit)

    assert run(scenario()) == ["c", "b", "é#/", "a", "d", "e"]


@pytest.mark.parametrize("limit", [1, 3, 50])
def test_runs_list_by_workflow_and_status(deployment: Deployment, limit: int) -> None:
    async def scenario() -> None:
        store = deployment.store
        for n in range(12):
            begun = header(f"r{n:02}", workflow=f"w{n % 2}", created_at=START - n)
            await store.put_header(begun)
            if n % 3 == 0:
                await store.update_header(replace(begun, status=RunStatus.FAILED))
        assert await _all_runs(store, limit, workflow="w1") == [
            f"r{n:02}" for n in range(12) if n % 2
        ]
        assert await _all_runs(store, limit, status=RunStatus.FAILED) == [
            "r00",
            "r03",
            "r06",
            "r09",
        ]
        assert await _all_runs(store, limit, status=RunStatus.FAILED, workflow="w1") == [
            "r03",
            "r09",
        ]
        assert await _all_runs(store, limit, workflow="w") == []

    run(scenario())


@pytest.mark.parametrize("limit", [1, 3, 50])
@pytest.mark.parametrize("status", list(RunStatus))
def test_runs_list_by_each_status(deployment: Deployment, status: RunStatus, limit: int) -> None:
    waits = (
        (),
        (Wait(kind="hook", id="h", name="h", since=START, until=START + 9),),
        (Wait(kind="timer", id="t", name="t", since=START, until=START + 9),),
    )

    async def scenario() -> None:
        store = deployment.store
        for other in RunStatus:
            for n, waiting in enumerate(waits):
                run_id = f"{other.value}{n}"
                await store.put_header(header(run_id, created_at=START - n))
                shown = waiting if other is RunStatus.SUSPENDED else ()
                await store.update_header(
                    header(run_id, created_at=START - n, status=other, waiting=shown)
                )
        expected = [f"{status.value}{n}" for n in range(3)]
        assert await _all_runs(store, limit, status=status) == expected
        assert await _all_runs(store, limit, status=status, workflow="orders") == expected
        assert await _all_runs(store, limit, status=status, workflow="other") == []

    run(scenario())


@pytest.mark.parametrize("limit", [1, 2, 50])
def test_runs_list_by_the_kind_of_their_note(deployment: Deployment, limit: int) -> None:
    def noted(n: int, kind: str | None, **fields: Any) -> RunHeader:
        note = None if kind is None else Attention(kind=kind, reason="r", since=START)
        return header(f"r{n}", created_at=START - n, attention=note, **fields)

    async def scenario() -> None:
        store = deployment.store
        for n, kind in enumerate(["BLOCKED", "STUCK", None, "BLOCKED", "BLOCKED"]):
            await store.put_header(noted(n, None))
            await store.update_header(noted(n, kind, status=RunStatus.SUSPENDED))
        await store.update_header(noted(3, None, status=RunStatus.COMPLETED))
        await store.update_header(noted(4, "BLOCKED", status=RunStatus.FAILED))
        assert await _all_runs(store, limit, attention="BLOCKED") == ["r0", "r4"]
        assert await _all_runs(store, limit, attention="STUCK") == ["r1"]
        assert await _all_runs(store, limit, attention="PAUSED") == []
        failed = RunStatus.FAILED
        assert await _all_runs(store, limit, attention="BLOCKED", status=failed) == ["r4"]
        assert await _all_runs(store, limit, attention="BLOCKED", workflow="other") == []

    run(scenario())


def test_a_cursor_survives_what_comes_and_changes_between_pages(deployment: Deployment) -> None:
    async def scenario() -> list[str]:
        store = deployment.store
        for n in range(4):
            await store.put_header(header(f"r{n}"))
        page = await store.list_runs(limit=2)
        await store.put_header(header("newer", created_at=START + 1))
        await store.update_header(header("r1", status=RunStatus.FAILED))
        rest = await _all_runs(store, 9, cursor=page.cursor)
        return [*(item.run_id for item in page.items), *rest]

    assert run(scenario()) == ["r0", "r1", "r2", "r3"]


@pytest.mark.parametrize("limit", [1, 2, 50])
def test_pending_hooks_list_oldest_first_and_ties_by_ids(
    deployment: Deployment, limit: int
) -> None:
    rows = [("b", "y", 5), ("b", "x", 5), ("a", "z", 5), ("c", "w", 1), ("c", "v", 9)]

    async def scenario() -> None:
        store = deployment.store
        for run_id, hook_id, time in rows:
            await store.put_hook(hook(run_id, hook_id, created_at=time))
        await store.put_hook(hook("a", "decided", created_at=5))
        await store.decide_hook("a", "decided", received())
        await store.put_hook(hook("a", "closed", status=HookStatus.CLOSED))
        assert await _all_hooks(store, limit) == [
            ("c", "w"),
            ("a", "z"),
            ("b", "x"),
            ("b", "y"),
            ("c", "v"),
        ]
        assert await _all_hooks(store, limit, run_id="b") == [("b", "x"), ("b", "y")]
        assert await _all_hooks(store, limit, run_id="nobody") == []

    run(scenario())


@pytest.mark.parametrize("cursor", ["", "x", "!!!!", "é", "e30", "WyJydW5zIl0", "A" * 10_000])
def test_a_bad_cursor_is_a_value_error(deployment: Deployment, cursor: str) -> None:
    with pytest.raises(ValueError, match="not a cursor"):
        run(deployment.store.list_runs(cursor=cursor))
    with pytest.raises(ValueError, match="not a cursor"):
        run(deployment.store.list_hooks(cursor=cursor))
    with pytest.raises(ValueError, match="not a cursor"):
        run(deployment.store.list_definitions(cursor=cursor))


def test_a_cursor_of_another_list_is_refused(deployment: Deployment) -> None:
    async def scenario() -> None:
        for n in range(2):
            await deployment.store.put_header(header(f"r{n}"))
            await deployment.store.put_hook(hook(hook_id=f"h{n}"))
            await deployment.store.publish(definition(f"w{n}"))
        definitions = (await deployment.store.list_definitions(limit=1)).cursor
        runs = (await deployment.store.list_runs(limit=1)).cursor
        hooks = (await deployment.store.list_hooks(limit=1)).cursor
        with pytest.raises(ValueError, match="not a cursor"):
            await deployment.store.list_hooks(cursor=runs)
        with pytest.raises(ValueError, match="not a cursor"):
            await deployment.store.list_runs(cursor=hooks)
        with pytest.raises(ValueError, match="not a cursor"):
            await deployment.store.list_runs(cursor=definitions)
        with pytest.raises(ValueError, match="not a cursor"):
            await deployment.store.list_definitions(cursor=runs)

    run(scenario())


def test_a_cursor_is_fit_for_a_url(deployment: Deployment) -> None:
    async def scenario() -> str | None:
        for run_id in NASTY_IDS:
            await deployment.store.put_header(header(run_id))
        assert await _all_runs(deployment.store, 1) == sorted(NASTY_IDS)
        return (await deployment.store.list_runs(limit=17)).cursor

    cursor = run(scenario())
    assert cursor is not None
    assert cursor.replace("-", "").replace("_", "").isalnum()
    assert cursor.isascii()


def test_a_list_needs_a_limit_of_one_or_more(deployment: Deployment) -> None:
    with pytest.raises(ValueError, match="limit"):
        run(deployment.store.list_runs(limit=0))
    with pytest.raises(ValueError, match="limit"):
        run(deployment.store.list_hooks(limit=-1))
    with pytest.raises(ValueError, match="limit"):
        run(deployment.store.list_definitions(limit=0))


def _note(reason: str) -> Attention:
    return Attention(kind="STUCK", reason=reason, since=START)


@pytest.mark.parametrize("read", [None, _note("read")])
@pytest.mark.parametrize("standing", [None, _note("read"), _note("other")])
def test_an_update_over_a_header_as_it_was_read_goes_over_no_other_note(
    deployment: Deployment, read: Attention | None, standing: Attention | None
) -> None:
    seen = header(last_event=3, attention=read)
    update = header(last_event=4, status=RunStatus.SUSPENDED)

    async def scenario() -> None:
        await deployment.store.put_header(header(last_event=3, attention=standing))
        done = await deployment.store.update_header(update, over=seen)
        assert done is (read == standing)
        found = await deployment.store.get_header("run")
        assert found == (update if done else header(last_event=3, attention=standing))
        behind = header(last_event=2)
        assert not await deployment.store.update_header(behind, over=found)

    run(scenario())


def test_a_cursor_that_names_nothing_is_the_beginning_of_the_list(deployment: Deployment) -> None:
    cursor = write_cursor("definitions", Place(0, ("",)))

    async def scenario() -> None:
        assert (await deployment.store.list_definitions(cursor=cursor)).items == ()

    run(scenario())
