"""Whatever dies, repeats or freezes, and wherever it does: the run comes to the same end."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from typing import Literal

import pytest

from examples.outside import connect
from stepwell.client import PendingHook
from stepwell.core.records import RunStatus
from stepwell.engine.attempt import AttemptEnd
from stepwell.engine.endings import TurnEnd
from stepwell.errors import HookAlreadyDecided, RunNotFound
from stepwell.testing import Environment
from stepwell.testing.laws import check_header, check_run
from tests.simulation.final import SEED, TIMES, Final, final
from tests.simulation.harness import (
    CrashingEnvironment,
    Freeze,
    FreezingEnvironment,
    RepeatingEnvironment,
    SlowEnvironment,
    VanishingCallerEnvironment,
    When,
)
from tests.simulation.scenarios import SCENARIOS, Scenario, asked

WHENS: tuple[When, When] = ("before", "after")
BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}


def over(*scenarios: Scenario) -> pytest.MarkDecorator:
    """Run a test on each of these scenarios."""
    return pytest.mark.parametrize("scenario", scenarios, ids=lambda scenario: scenario.name)


every = over(*SCENARIOS)
_LARGE = (
    "map",
    "map elsewhere",
    "map asks elsewhere",
    "approval",
    "approval unanswered",
    "agent",
    "checkpoints",
    "beside",
    "streamed",
)
_FAMILIES = ("parent", "left children", "rounds", "def parent")
_STREAMS = ("reviewing", "game", "office", "shaky")
small = over(*(s for s in SCENARIOS if s.name not in (*_LARGE, *_FAMILIES, *_STREAMS)))
streaming = over(*(BY_NAME[name] for name in _STREAMS))
# What freezes loses minutes, and what happens in them cannot be compared where time decides.
untimed = over(*(s for s in SCENARIOS if not s.timed))
undrawn = over(*(s for s in SCENARIOS if not s.drawn))
dispatching = over(
    *(BY_NAME[name] for name in ("dispatched", "asked elsewhere", "outrun elsewhere"))
)
contended = over(
    *(BY_NAME[name] for name in ("approval", "outrun", "checkpoints", "cancel", "timeouts"))
)


def drive(
    env: Environment, scenario: Scenario, *, besides: Iterable[str] = (), laws: bool = True
) -> Final:
    """Play a scenario to its end, whatever happens on the way; its history must obey all laws."""
    world = connect(":memory:")
    try:
        run = env.start(scenario.workflow, *scenario.args)
        env.run_until_idle()
        scenario.script(env, run)
        env.run_until_idle()
        if isinstance(env, FreezingEnvironment):
            env.settle()
        if laws:
            check_run(env, run)
        else:
            check_header([each.event for each in env.history(run)], env.get(run))
        return final(env, run, scenario, world, besides=besides)
    finally:
        world.close()


@cache
def without_faults(scenario: Scenario, besides: Iterable[str] = ()) -> tuple[Final, int]:
    """How the scenario ends when nothing goes wrong, and in how many port calls."""
    with Environment(chance=0.5) as env:
        return drive(env, scenario, besides=besides), len(env.port_calls)


def crashed(scenario: Scenario, *plan: tuple[int, When]) -> tuple[Final, int]:
    """How the scenario ends with these crashes, and how many of them came to pass."""
    with CrashingEnvironment(plan) as env:
        # Equal histories obey equal laws: where there are many drives, equality is enough.
        return drive(env, scenario, laws=len(plan) == 1), env.crashes


ENDS = {
    "approval": '"status":"paid"',
    "approval unanswered": '"status":"unanswered"',
    "agent": "the visitor did not respond",
    "retry": '"up"',
    "workflow hook": '{"a":1}',
    "two hooks": "[1,2]",
    "race": '"won"',
    "unnotified": '"no such reviewer, ',
    "timeouts": '["LATE unseen","question"]',
    "checkpoints": '["DRAFT fine",["1st","2nd"]]',
    "beside": '"DRAFT fine","told"',
    "streamed": '["told",3]',
    "map elsewhere": ',1,"no such item"]',
    "map asks elsewhere": ' 2"]',
    "map": ',1,["right yes"],"',
    "def workflow": ",42,",
    "keyed": ',"one",',
    "polled": '["looked","looked","looked","looked","looked","looked"]',
    "undone": '"no: 1 of the compensations failed',
    "dispatched": ',3,"no"]',
    "asked elsewhere": 'yes"',
    "outrun elsewhere": '"yes"',
    "parent": '"family.failing@bad ValueError"',
    "left children": '["not needed","late","running"]',
    "held child": '"kept"',
    "rounds": "3",
    "def parent": "[3,",
    "reopened": ",2]",
    "paused": ",1,",
    "forked": ",1,",
    "reviewing": '{"counter":4,"review":2}',
    "game": "[5,6]",
    "office": '{"clerk":3}',
    "shaky": '"blocks":["',
}


@every
def test_without_faults_a_scenario_ends_as_it_should(scenario: Scenario) -> None:
    found, _ = without_faults(scenario)
    cancelled = dict.fromkeys(
        ("cancel", "undone by cancel", "cancelled parent"), RunStatus.CANCELLED
    )
    ends = {**cancelled, "failed": RunStatus.FAILED}
    assert found.status is ends.get(scenario.name, RunStatus.COMPLETED)
    assert ENDS.get(scenario.name, "") in (found.result or "")
    assert found.open_hooks == 0


@every
def test_a_crash_at_any_port_call_changes_nothing(scenario: Scenario) -> None:
    expected, calls = without_faults(scenario)
    for call, when in itertools.product(range(1, calls + 1), WHENS):
        found, crashes = crashed(scenario, (call, when))
        assert crashes == 1
        assert found == expected, f"crash {when} call {call}"


@small
def test_a_second_crash_while_recovering_changes_nothing(scenario: Scenario) -> None:
    expected, calls = without_faults(scenario)
    for first in range(1, calls + 1):
        for second in itertools.count(1):
            found, crashes = crashed(scenario, (first, "before"), (second, "before"))
            assert found == expected, f"crash before call {first}, and {second} calls after that"
            if crashes < 2:
                assert second > 1, f"no crash came while recovering from the one at call {first}"
                break


@dispatching
@pytest.mark.parametrize("whens", list(itertools.product(WHENS, WHENS)), ids="-".join)
def test_attempts_that_crash_one_after_the_other_change_nothing(
    scenario: Scenario, whens: tuple[When, When]
) -> None:
    """The second crash comes at each call after the first, which stays where it was."""
    expected, calls = without_faults(scenario)
    first, second = whens
    for call in range(1, calls + 1):
        for later in range(1, 5):
            found, _ = crashed(scenario, (call, first), (later, second))
            assert found == expected, f"crash {first} call {call}, {second} call {later} after it"


@every
def test_a_message_that_comes_twice_changes_nothing(scenario: Scenario) -> None:
    expected, _ = without_faults(scenario)
    with RepeatingEnvironment() as env:
        assert drive(env, scenario) == expected
        assert env.seen


@every
def test_messages_that_come_again_when_all_is_over_change_nothing(scenario: Scenario) -> None:
    world = connect(":memory:")
    with RepeatingEnvironment() as env:
        run = env.start(scenario.workflow, *scenario.args)
        env.run_until_idle()
        scenario.script(env, run)
        before = env.history(run), env.get(run), world.effects("note")
        ends = env.deliver_again([*env.seen, *reversed(env.seen)])
        assert set(ends) == {TurnEnd.NOTHING}
        env.number_again([*env.seen_signals, *reversed(env.seen_signals)])
        made = env.attempt_again([*env.seen_attempts, *reversed(env.seen_attempts)])
        assert set(made) <= {AttemptEnd.NOTHING}
        env.run_until_idle()
        assert (env.history(run), env.get(run), world.effects("note")) == before


@undrawn
def test_a_caller_that_dies_at_any_call_and_asks_again_changes_nothing(scenario: Scenario) -> None:
    with VanishingCallerEnvironment(0, "before", asks_again=True) as env:
        expected = drive(env, scenario, besides=SEED)
    for when in WHENS:
        for call in itertools.count(1):
            with VanishingCallerEnvironment(call, when, asks_again=True) as env:
                found = drive(env, scenario, besides=SEED)
            assert found == expected, f"caller died {when} call {call}"
            if not env.vanished:
                break


def _asked(env: Environment) -> PendingHook:
    connect(":memory:")
    env.start(asked)
    env.run_until_idle()
    [hook] = env.hooks()
    return hook


@pytest.mark.parametrize("when", WHENS)
def test_an_answer_whose_caller_dies_for_good_is_taken_once_it_was_sent(when: When) -> None:
    with VanishingCallerEnvironment(0, "before", asks_again=False) as env:
        _asked(env)
        start_calls = env.caller_calls
    outcomes = set()
    for call in (1, 2, 3, 4):
        with VanishingCallerEnvironment(start_calls + call, when, asks_again=False) as env:
            hook = _asked(env)
            run = env.handle(hook.run_id)
            env.resume_hook(hook.token, "first")
            assert env.vanished
            sent = bool(env.get(run).status.terminal)
            if sent:
                with pytest.raises(HookAlreadyDecided):
                    env.resume_hook(hook.token, "second")
            else:
                env.resume_hook(hook.token, "second")
            assert env.result(run) == ("first" if sent else "second")
            check_run(env, run)
            outcomes.add(sent)
    assert outcomes == {True, False}


@pytest.mark.parametrize("when", WHENS)
def test_a_start_whose_caller_dies_for_good_happens_once_it_was_sent(when: When) -> None:
    outcomes = []
    for call in (1, 2, 3):
        with VanishingCallerEnvironment(call, when, asks_again=False) as env:
            connect(":memory:")
            env.start(asked)
            run = env.handle_by_key(asked)
            try:
                waiting = len(env.get(run).waiting)
            except RunNotFound:
                waiting = 0
            outcomes.append(waiting)
    # Read the header, send the message, put the header: the message decides.
    assert outcomes == ([0, 0, 1] if when == "before" else [0, 1, 1])


@every
def test_ports_that_answer_slowly_and_out_of_order_change_no_outcome(scenario: Scenario) -> None:
    expected, _ = without_faults(scenario)
    for seed in range(10):
        with SlowEnvironment(seed) as env:
            found = drive(env, scenario)
        # What runs side by side may end in another order, so the events may come in another one.
        assert replace(found, events=expected.events) == expected, f"seed {seed}"


def frozen(scenario: Scenario, freeze: Freeze) -> tuple[bool, bool]:
    """Play with a turn that freezes, and compare. Whether one froze, and whether it thawed."""
    expected, _ = without_faults(scenario, tuple(TIMES))
    with FreezingEnvironment(freeze) as env:
        assert drive(env, scenario, besides=TIMES, laws=False) == expected, freeze
        return env.frozen, env.thawed


@untimed
def test_a_frozen_turn_that_thaws_after_the_next_one_changes_nothing(scenario: Scenario) -> None:
    for when in WHENS:
        for call in itertools.count(1):
            if not any(frozen(scenario, Freeze(at=call, when=when, thaw="next"))):
                break


@untimed
def test_a_frozen_turn_that_thaws_when_all_is_over_changes_nothing(scenario: Scenario) -> None:
    for call in itertools.count(1):
        if not any(frozen(scenario, Freeze(at=call, when="before", thaw="end"))):
            break


@contended
@pytest.mark.parametrize("calls", [1, None])
def test_a_frozen_turn_that_thaws_in_the_middle_of_the_next_one_changes_nothing(
    scenario: Scenario, calls: int | None
) -> None:
    """Thawed, it makes one more call and freezes for ever, or it runs to its end."""
    for call in itertools.count(1):
        for other in itertools.count(1):
            freeze = Freeze(at=call, when="before", thaw=other, calls=calls)
            has_frozen, has_thawed = frozen(scenario, freeze)
            if not has_frozen:
                return
            if not has_thawed:
                break  # the other turn makes fewer calls


@dispatching
@pytest.mark.parametrize("thaw", ["next", "end"])
def test_a_frozen_attempt_that_thaws_later_changes_nothing(
    scenario: Scenario, thaw: Literal["next", "end"]
) -> None:
    for when in WHENS:
        for call in itertools.count(1):
            freeze = Freeze(at=call, when=when, thaw=thaw, what="attempt")
            if not any(frozen(scenario, freeze)):
                assert call > 1
                break


@streaming
@pytest.mark.parametrize("thaw", ["next", "end"])
def test_who_numbers_signals_and_freezes_changes_nothing(
    scenario: Scenario, thaw: Literal["next", "end"]
) -> None:
    for when in WHENS:
        for call in itertools.count(1):
            freeze = Freeze(at=call, when=when, thaw=thaw, what="signals")
            if not any(frozen(scenario, freeze)):
                assert call > 1
                break


@over(BY_NAME["asked elsewhere"], BY_NAME["outrun elsewhere"])
@pytest.mark.parametrize("calls", [1, None])
def test_a_frozen_attempt_that_thaws_at_any_call_after_that_changes_nothing(
    scenario: Scenario, calls: int | None
) -> None:
    """Of whoever took its message over, of the turns after that, and of the next attempts."""
    for call in itertools.count(1):
        for later in itertools.count(1):
            freeze = Freeze(at=call, when="before", thaw=later, calls=calls, what="attempt")
            has_frozen, has_thawed = frozen(scenario, freeze)
            if not has_frozen:
                return
            if not has_thawed:
                break
