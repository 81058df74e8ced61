from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.core.ids import check_key, check_name, counted, inside, keyed, keyed_step, run_id_for
from stepwell.errors import DefinitionError

names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.-]{0,20}", fullmatch=True)
keys = st.text(st.characters(blacklist_categories=["Cs"]), min_size=1, max_size=20)
scopes = st.from_regex(r"(g?[1-9](\.g?[1-9]){0,3})?", fullmatch=True)


@pytest.mark.parametrize("name", ["charge", "_x", "a.b-c_9", "A" * 128])
def test_names_that_can_stand_in_an_id(name: str) -> None:
    assert check_name("step", name) == name


@pytest.mark.parametrize(
    "name",
    ["", "1st", "a b", "a/b", "a:1", "a@b", "a>b", "ä", "a\n", "-a", ".a", "<lambda>", "A" * 129,
     None, 3],
)  # fmt: skip
def test_names_that_cannot_are_refused_with_the_rule(name: str) -> None:
    with pytest.raises(DefinitionError, match="step name"):
        check_name("step", name)


@pytest.mark.parametrize("key", ["", "k" * 257, None, 3, b"key"])
def test_keys_have_a_length(key: str) -> None:
    with pytest.raises(DefinitionError, match="1 to 256 characters"):
        check_key("hook", key)


def test_a_key_may_hold_anything() -> None:
    assert check_key("hook", "order/7:ü>@ ") == "order/7:ü>@ "


def test_the_forms_of_ids() -> None:
    assert counted("", "charge", 1) == "charge:1"
    assert counted("1.2", "charge", 3) == "1.2/charge:3"
    assert keyed("approval", "order-7") == "approval@order-7"
    assert keyed_step("charge", "order-7") == "charge=order-7"
    assert inside("review:1", "approval:1") == "review:1>approval:1"


_one = st.one_of(
    st.tuples(st.just("counted"), scopes, names, st.integers(1, 99)),
    st.tuples(st.just("keyed"), names, keys),
    st.tuples(st.just("keyed step"), names, keys),
    st.tuples(st.just("inside counted"), scopes, names, st.integers(1, 9), names, st.integers(1, 9)),
    st.tuples(st.just("inside keyed"), scopes, names, st.integers(1, 9), names, keys),
)  # fmt: skip


def made(what: tuple[object, ...]) -> str:
    kind, *parts = what
    if kind == "counted":
        return counted(*parts)  # type: ignore[arg-type]
    if kind == "keyed":
        return keyed(*parts)  # type: ignore[arg-type]
    if kind == "keyed step":
        return keyed_step(*parts)  # type: ignore[arg-type]
    step = counted(*parts[:3])  # type: ignore[arg-type]
    below = counted("", *parts[3:]) if kind == "inside counted" else keyed(*parts[3:])  # type: ignore[arg-type]
    return inside(step, below)


@given(_one, _one)
def test_two_different_things_never_share_an_id(
    one: tuple[object, ...], other: tuple[object, ...]
) -> None:
    assert (made(one) == made(other)) == (one == other)


def test_a_run_id_stands_for_workflow_and_key_and_keeps_them_apart() -> None:
    assert run_id_for("a", "k") == run_id_for("a", "k")
    assert len(run_id_for("a", "k")) == 32
    assert run_id_for("a", "b:c") != run_id_for("a:b", "c")
    assert run_id_for("1", "1:x") != run_id_for("1:1", "x")
