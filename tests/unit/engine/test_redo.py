"""What a retry does again: what ended the run, and all that was asked for knowing of it."""

from __future__ import annotations

import asyncio

import pytest

from stepwell.engine.loop import Scope
from stepwell.engine.redo import Trail
from stepwell.errors import Failure, HookTimeout, StepFailed

FAILURE = Failure(type="OSError", message="down")


def failed(step: str) -> StepFailed:
    return StepFailed(step, "s", 1, FAILURE)


class Pass:
    """A pass in which things are asked for and go wrong."""

    def __init__(self) -> None:
        self.asked: dict[str, None] = {}
        self.told: list[tuple[str, int]] = []
        self.trail = Trail(self.asked, self.told)
        self.root = Scope("")

    def ask(self, *ids: str) -> None:
        self.asked.update(dict.fromkeys(ids))


@pytest.fixture
def run() -> Pass:
    return Pass()


def test_what_came_before_is_not_done_again(run: Pass) -> None:
    run.ask("a:1", "b:1")
    run.trail.failed("b:1", run.root)
    run.ask("tidy:1")
    assert run.trail.redo(failed("b:1")) == ("b:1", "tidy:1")


def test_a_branch_that_knows_nothing_keeps_what_it_did(run: Pass) -> None:
    first, second = run.root.child(), run.root.child()
    run.ask("1/a:1", "2/a:1")
    run.trail.failed("1/a:1", first)
    run.ask("2/b:1", "1/tidy:1", "tidy:1", "1.1/begun:1", "2.1/begun:1", "3/begun:1")
    assert second.path == "2"
    assert run.trail.redo(failed("1/a:1")) == (
        "1/a:1",
        "1/tidy:1",
        "tidy:1",
        "1.1/begun:1",
        "3/begun:1",
    )


def test_a_branch_that_was_told_to_end_knows(run: Pass) -> None:
    first, second = run.root.child(), run.root.child()
    inner = second.child()
    run.ask("1/a:1", "2/a:1", "2.1/a:1")
    run.trail.failed("1/a:1", first)
    run.told.append((second.path, second.children))
    run.ask("2/release:1", "2.1/b:1", "2.2/c:1")
    assert inner.path == "2.1"
    assert run.trail.redo(failed("1/a:1")) == ("1/a:1", "2/release:1", "2.2/c:1")


def test_what_was_told_before_does_not_count(run: Pass) -> None:
    first, second = run.root.child(), run.root.child()
    run.told.append((second.path, 0))
    run.ask("1/a:1")
    run.trail.failed("1/a:1", first)
    run.ask("2/b:1")
    assert run.trail.redo(failed("1/a:1")) == ("1/a:1",)


def test_keys_say_nothing_of_where(run: Pass) -> None:
    run.ask("a:1", "before=k")
    run.trail.failed("a:1", run.root.child())
    run.ask("charge=order/7", "approve@k")
    assert run.trail.redo(failed("a:1")) == ("a:1", "charge=order/7", "approve@k")


def test_the_chain_of_an_error_is_gone_through(run: Pass) -> None:
    run.ask("a:1", "b:1", "h:1", "c:1")
    for identity in run.asked:
        run.trail.failed(identity, run.root)
    cause, context = failed("a:1"), HookTimeout("h:1", "h", "late")
    error = ExceptionGroup("all", [ValueError("x"), failed("c:1")])
    error.__cause__, cause.__context__ = cause, context
    assert set(run.trail.redo(error)) == {"a:1", "c:1", "h:1"}


def test_an_error_that_is_no_outcome_brings_nothing_back(run: Pass) -> None:
    run.ask("a:1")
    assert run.trail.redo(KeyError("bug")) == ()
    assert run.trail.redo(failed("never:1")) == ()


def test_a_cancel_is_known_to_the_workflow(run: Pass) -> None:
    run.ask("a:1")
    run.trail.cancelled(run.root)
    run.ask("undo:1")
    assert run.trail.redo(asyncio.CancelledError()) == ("undo:1",)


def test_only_a_timeout_of_asyncio_is_a_timer(run: Pass) -> None:
    async def times_out() -> None:
        async with asyncio.timeout(0):
            await asyncio.sleep(1)

    run.ask("timer:1")
    run.trail.fired("timer:1", run.root)
    assert run.trail.redo(TimeoutError("own")) == ()
    with pytest.raises(TimeoutError) as caught:
        asyncio.run(times_out())
    assert run.trail.redo(caught.value) == ("timer:1",)
