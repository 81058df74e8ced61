from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from stepwell import errors
from stepwell.core.failure import MAX_MESSAGE, MAX_TRACEBACK, describe
from stepwell.errors import Failure, StepFailed


class Broken(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


def test_type_and_message_are_told() -> None:
    failure = describe(ValueError("bad"))
    assert (failure.type, failure.message, failure.traceback) == ("ValueError", "bad", None)


def test_a_type_outside_builtins_is_qualified() -> None:
    class Local(Exception):
        pass

    assert describe(Local()).type == f"{__name__}.{Local.__qualname__}"


def test_the_traceback_shows_where_it_was_raised() -> None:
    failure = describe(raised(ValueError("bad")))
    assert failure.traceback is not None
    assert "in raised" in failure.traceback
    assert "raise error" in failure.traceback


def test_frames_of_stepwell_are_left_out() -> None:
    scope = {"__name__": "stepwell.engine.turn", "outside": raised}
    source = "def inside(f):\n    f()\n"
    exec(compile(source, "turn.py", "exec"), scope)

    def user() -> None:
        raise ValueError("bad")

    with pytest.raises(ValueError, match="bad") as caught:
        scope["inside"](user)
    failure = describe(caught.value)
    assert failure.traceback is not None
    assert "in user" in failure.traceback
    assert "turn.py" not in failure.traceback


def test_the_last_frames_are_kept_within_the_limit() -> None:
    def descend(n: int) -> None:
        if n:
            return descend_again(n - 1)
        raise ValueError("at the bottom")

    def descend_again(n: int) -> None:
        return descend(n)

    with pytest.raises(ValueError, match="bottom") as caught:
        descend(200)
    failure = describe(caught.value)
    assert failure.traceback is not None
    assert len(failure.traceback) <= MAX_TRACEBACK
    assert failure.traceback.startswith("  ...\n")
    assert 'raise ValueError("at the bottom")' in failure.traceback


def test_a_recursion_error_is_described() -> None:
    def forever() -> None:
        forever()

    with pytest.raises(RecursionError) as caught:
        forever()
    failure = describe(caught.value)
    assert failure.type == "RecursionError"
    assert failure.traceback is not None
    assert len(failure.traceback) <= MAX_TRACEBACK


def test_a_long_message_is_cut() -> None:
    message = describe(ValueError("x" * 10_000)).message
    assert len(message) == MAX_MESSAGE
    assert message.endswith("x…")


def test_an_exception_whose_text_cannot_be_had_is_described() -> None:
    failure = describe(Broken())
    assert failure.type.endswith("Broken")
    assert "RuntimeError" in failure.message


def test_text_that_cannot_be_encoded_is_escaped() -> None:
    assert describe(ValueError("\ud800")).message == "\\ud800"


def test_notes_follow_the_message() -> None:
    error = ValueError("bad")
    error.add_note("row 7")
    assert describe(error).message == "bad\nrow 7"


def test_the_cause_is_followed_three_levels_deep() -> None:
    error: BaseException = ValueError("0")
    for n in range(1, 6):
        outer = ValueError(str(n))
        outer.__cause__ = error
        error = outer
    messages = []
    failure: Failure | None = describe(error)
    while failure is not None:
        messages.append(failure.message)
        failure = failure.cause
    assert messages == ["5", "4", "3", "2"]


def test_causes_in_a_circle_end() -> None:
    one, two = ValueError("1"), ValueError("2")
    one.__cause__, two.__cause__ = two, one
    assert describe(one).cause is not None


def test_the_context_counts_unless_it_is_suppressed() -> None:
    def during(error: Exception) -> BaseException:
        try:
            raise KeyError("first")
        except KeyError:
            return raised(error)

    def instead(error: Exception) -> BaseException:
        try:
            try:
                raise KeyError("first")
            except KeyError:
                raise error from None
        except Exception as caught:
            return caught

    shown = describe(during(ValueError("second")))
    assert shown.cause is not None
    assert shown.cause.type == "KeyError"
    assert describe(instead(ValueError("second"))).cause is None


def test_the_failure_that_a_step_ended_with_is_the_cause_of_its_error() -> None:
    ended = Failure("OSError", "unplugged", cause=Failure("KeyError", "'x'"))
    failure = describe(StepFailed("s1", "charge", 4, ended))
    assert failure.type == "stepwell.errors.StepFailed"
    assert failure.cause == ended


def test_a_carried_failure_does_not_grow_beyond_the_limit() -> None:
    carried = Failure("E", "0")
    for n in range(1, 9):
        carried = Failure("E", str(n), cause=carried)
    failure: Failure | None = describe(StepFailed("s1", "charge", 4, carried))
    depth = 0
    while failure is not None:
        failure, depth = failure.cause, depth + 1
    assert depth == 4


def test_a_group_names_its_first_errors() -> None:
    group = ExceptionGroup("several", [ValueError(str(n)) for n in range(5)])
    message = describe(group).message
    assert message.startswith("several (5 sub-exceptions): ValueError: 0; ValueError: 1")
    assert "ValueError: 3" not in message
    assert message.endswith("and 2 more")


def test_a_group_with_a_broken_member_is_described() -> None:
    assert "RuntimeError" in describe(ExceptionGroup("g", [Broken()])).message


def test_describing_leaves_the_exception_as_it_was() -> None:
    error = raised(ValueError("bad"))
    before = SimpleNamespace(trace=error.__traceback__, context=error.__context__)
    describe(error)
    assert error.__traceback__ is before.trace
    assert error.__context__ is before.context
    assert sys.exc_info() == (None, None, None)


_OURS = [
    found
    for name in errors.__all__
    if isinstance(found := getattr(errors, name), type) and issubclass(found, errors.StepwellError)
]


@pytest.mark.parametrize("kind", _OURS)
def test_names_of_our_errors_are_recorded_as_they_are_imported(
    kind: type[errors.StepwellError],
) -> None:
    error = kind.__new__(kind)
    assert describe(error).type == f"stepwell.errors.{kind.__name__}"
