"""What is said of code that asks for something else than is recorded."""

from __future__ import annotations

from stepwell.core import events as e
from stepwell.core.divergence import Line, compared, moved, recorded_lines, shifted


def steps(*parts: tuple[str, str]) -> dict[str, Line]:
    return {identity: ("step", digest) for identity, digest in parts}


def test_lines_are_the_workflows_own_calls_in_order() -> None:
    what = {"at": 1, "name": "n"}
    history: list[e.Event] = [
        e.RunStarted(at=1, workflow="w", version="1", input="{}", seed="s"),
        e.StepStarted(step="a:1", digest="da", attempt=1, **what),  # type: ignore[arg-type]
        e.HookOpened(hook="a:1>h:1", step="a:1", **what),  # type: ignore[arg-type]
        e.HookOpened(hook="h:1", **what),  # type: ignore[arg-type]
        e.TimerStarted(timer="sleep:1", due=5, **what),  # type: ignore[arg-type]
        e.StepCompleted(step="a:1", digest="da", attempt=1, result="1", **what),  # type: ignore[arg-type]
    ]
    assert list(recorded_lines(history).items()) == [
        ("a:1", ("step", "da")),
        ("h:1", ("hook", None)),
        ("sleep:1", ("timer", None)),
    ]


def test_a_call_that_is_gone_shows_by_the_later_one_that_took_its_place() -> None:
    told = shifted("1/pay:1", "b", steps(("1/pay:1", "a"), ("1/pay:2", "b")))
    assert "a call was removed before '1/pay:1'" in told
    assert "recorded as '1/pay:2'" in told
    assert "with_options(key=" in told
    assert "patched(" in told


def test_a_call_that_is_new_shows_by_the_earlier_one_that_it_repeats() -> None:
    told = shifted("pay:2", "a", steps(("pay:1", "a"), ("pay:2", "b")))
    assert "a call was inserted before 'pay:2'" in told
    assert "recorded as 'pay:1'" in told


def test_another_scope_name_or_key_tells_nothing_of_a_shift() -> None:
    recorded = steps(("1/pay:2", "b"), ("paid:2", "b"), ("pay=2", "b"), ("pay:1", "a"))
    assert shifted("pay:1", "b", recorded).startswith("either the input of 'pay:1' has changed")
    assert shifted("pay=1", "b", recorded) == ""


def test_a_record_that_is_left_shows_where_its_call_went() -> None:
    recorded = steps(("pay:1", "a"), ("pay:2", "b"))
    told = moved("pay:2", recorded, {"pay:1": "a", "1/pay:1": "b"})
    assert "'pay:2' is recorded and '1/pay:1' is asked for" in told
    assert "'pay:1' is the last call of its name" in moved("pay:2", recorded, {"pay:1": "a"})
    assert moved("pay:1", recorded, {"send:1": "a"}) == ""
    assert moved("h:1", {"h:1": ("hook", None)}, {"x:1": None}) == ""
    keyed = steps(("pay=k", "a"))
    assert "'pay=k' is recorded and 'pay:1' is asked for" in moved("pay=k", keyed, {"pay:1": "a"})


def test_a_comparison_marks_both_sides_around_the_first_difference() -> None:
    recorded = steps(*((f"s:{n}", "0123456789") for n in range(1, 40)))
    asked = {**dict(list(recorded.items())[:20]), "h:1": ("hook", None)}
    lines = compared(recorded, asked).splitlines()
    assert lines[0] == "  ..."
    assert lines[1] == "  step 's:18' with input 01234567"
    assert lines[4] == "- step 's:21' with input 01234567"
    assert lines[-1] == "  ... and 11 more"
    assert len(lines) == 14
    assert compared(recorded, recorded) == ""


def test_a_comparison_is_bounded_in_width() -> None:
    long = steps(("s" * 128 + "=" + "k" * 256, "d"))
    assert max(len(line) for line in compared(long, {}).splitlines()) <= 122
