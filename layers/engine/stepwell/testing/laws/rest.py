"""Laws of a run that is left alone: it has ended, or something will wake it.

They hold when no message of the run is in the run queue; most of them only when no attempt of its
dispatched steps is under way either. A run with a note for an operator may wait for him alone; one
that is stuck may not even know what was decided, for that came with a message that it could not
take.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from stepwell.core import events as e
from stepwell.core.records import HookRow, HookStatus, Millis, RunHeader, RunStatus, StepRow, Wait
from stepwell.core.state import RunState, fold, is_of
from stepwell.engine.settle import SHOWN_WAITS
from stepwell.testing.facts import RunFacts
from stepwell.testing.laws.inbox import check_taken
from stepwell.testing.laws.rows import read_output

STATUS = {
    "completed": RunStatus.COMPLETED,
    "failed": RunStatus.FAILED,
    "cancelled": RunStatus.CANCELLED,
    "continued": RunStatus.CONTINUED,
    "running": RunStatus.SUSPENDED,
}


def check_rest(facts: RunFacts) -> None:
    """The laws of this module, as far as they hold for a run in this state."""
    header = facts.rows.header
    if header is None or facts.in_queue:
        return
    events = facts.events
    assert events or header.attention is not None, "it was accepted, and nothing began"
    if not events:
        return
    check_header(events, header)
    waits = not header.status.terminal and header.attention is None
    if waits:
        check_timer(events, facts.timer)
        check_attempts(events, facts.attempts)
    if facts.attempts:
        return
    state = fold(events)
    if header.attention is None or header.attention.kind != "STUCK":
        check_recorded(state, facts.rows.hooks)
        check_taken(state, facts.rows.inbox)
    if header.attention is None:
        check_open_hooks(state, facts.rows.hooks)
    if waits:
        check_waits(state, facts)
        check_reports(state, facts.rows.steps)
    if facts.open_hooks is not None:
        check_listed_hooks(facts.rows.hooks, facts.open_hooks)


def check_header(events: Sequence[e.Event], header: RunHeader) -> None:
    """The header says what the log says, and a run that waits has something to wait for."""
    if header.attention is not None:
        # What a blocked turn learned is not in the log, and the header keeps what it said before.
        assert header.last_event <= len(events), f"header: event {header.last_event}"
        return
    state = fold(events)
    assert state.status is not None
    expected = STATUS[state.status]
    assert header.status is expected, f"header: {header.status}, the log: {state.status}"
    assert header.last_event == len(events), f"header: event {header.last_event} of {len(events)}"
    said, told = (header.result, header.error), (state.result, state.error)
    assert said == told, f"header: {said}, the log: {told}"
    if state.terminal:
        assert header.waiting == (), f"header: an ended run waits for {header.waiting}"
    else:
        check_shown(state.waits(), header)


def check_shown(waits: Sequence[Wait], header: RunHeader) -> None:
    """The header shows what the run waits for."""
    assert waits or header.waiting, "the run waits, and nothing can wake it"
    shown = min(len(waits), SHOWN_WAITS)
    assert len(header.waiting) == shown, f"header: waits {header.waiting}, the log: {waits}"
    unknown = [wait for wait in header.waiting if wait not in waits]
    assert not unknown, f"header: waits for {unknown}, the log: {waits}"
    assert header.waits_not_shown == len(waits) - shown, f"header: {header.waits_not_shown} more"


def check_timer(events: Sequence[e.Event], due: Millis | None) -> None:
    """A run that waits for a time has a timer that wakes it by then."""
    check_timer_of(fold(events), due)


def check_timer_of(state: RunState, due: Millis | None) -> None:
    """As `check_timer`, of what a log comes to."""
    alarm = state.next_alarm()
    assert alarm is None or (due is not None and due <= alarm.due), f"{alarm}, timer: {due}"


def check_attempts(events: Sequence[e.Event], under_way: Set[int]) -> None:
    """A run that waits for a dispatched step has a message for it, or somebody who works on it."""
    check_attempts_of(fold(events), under_way)


def check_attempts_of(state: RunState, under_way: Set[int]) -> None:
    """As `check_attempts`, of what a log comes to."""
    for step in state.steps.values():
        waits = step.order and step.order not in under_way
        assert not waits, f"event {step.order}: nobody makes the attempt of {step.id!r}"
    for each in state.maps.values():
        waits = each.dispatched and each.status == "started" and each.order not in under_way
        taken_over = any(
            step.id.startswith(f"{each.id}#") and step.status not in ("completed", "failed")
            for step in state.steps.values()
        )
        assert taken_over or not waits, f"event {each.order}: nobody makes items of {each.id!r}"


def check_recorded(state: RunState, rows: Sequence[HookRow]) -> None:
    """What was decided about a hook is in the log.

    Only a hook that came too late, from an attempt or a turn that was overtaken, may be closed
    unknown to it. What a subscription's earlier signals left is told no more.
    """
    for row in rows:
        if not is_of(state, row.hook_id, row.step):
            continue
        known = state.hooks.get(row.hook_id)
        if row.status is HookStatus.PENDING or (known is not None and not known.open):
            continue
        late = known is None and row.status is HookStatus.CLOSED
        assert late, f"hook {row.hook_id!r} is {row.status}, and the log does not say so"


def check_open_hooks(state: RunState, rows: Sequence[HookRow]) -> None:
    """The hooks that the log knows to be open are those whose rows are; none after the end."""
    pending = {row.hook_id for row in rows if row.status is HookStatus.PENDING}
    if state.terminal:
        assert not pending, f"the run has ended, and hooks are open: {sorted(pending)}"
    known = {hook.id for hook in state.hooks.values() if hook.open}
    assert pending == known, f"open rows of hooks: {sorted(pending)}, in the log: {sorted(known)}"


def check_waits(state: RunState, facts: RunFacts) -> None:
    """Whatever the run waits in can be ended: by an open hook, a timer, an attempt or a child.

    `check_timer` and `check_attempts` say that these are there.
    """
    held = {hook.step for hook in state.hooks.values() if hook.open and hook.step is not None}
    for step in state.steps.values():
        if step.status == "suspended":
            assert not step.woken, f"step {step.id!r}: its hook is decided, and it was not entered"
            ended = step.id in held or step.reason is not None
            assert ended, f"step {step.id!r} is suspended, and no hook of it is open"
            count = read_output(step.id, facts.output.get(step.id, ()))
            assert count >= step.output, f"step {step.id!r}: {step.output} chunks, found {count}"
        elif step.status == "started":
            assert step.order, f"step {step.id!r} was begun, and nobody works on it"
    for name in held:
        open_step = name in state.steps and state.steps[name].status == "suspended"
        assert open_step, f"step {name!r} is not suspended, and hooks of it are open"


def check_reports(state: RunState, rows: Sequence[StepRow]) -> None:
    """What an attempt came to that the run waits for has been recorded."""
    for row in rows:
        known = state.steps.get(row.step)
        waits = known is not None and known.order == row.order
        assert not (waits and row.outcome), f"step {row.step!r}: its row has an outcome, unrecorded"


def check_listed_hooks(rows: Sequence[HookRow], listed: Sequence[HookRow]) -> None:
    """The list of a run's pending hooks has its pending rows, each once, oldest first."""
    pending = [row for row in rows if row.status is HookStatus.PENDING]
    pending.sort(key=lambda row: (row.created_at, row.run_id, row.hook_id))
    ids = [row.hook_id for row in listed]
    expected = [row.hook_id for row in pending]
    assert ids == expected, f"hooks listed: {ids}, pending: {expected}"
    wrong = [row.hook_id for row, each in zip(pending, listed, strict=True) if row != each]
    assert not wrong, f"hooks listed otherwise than they are: {wrong}"
