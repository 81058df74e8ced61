from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.core.tokens import Keyring
from stepwell.errors import DefinitionError, InvalidToken

OLD = b"an old secret of 24 bytes"
NEW = b"a new secret, also long"
RING = Keyring({"k1": OLD, "k2": NEW})

ids = st.text(st.characters(blacklist_categories=["Cs"]), min_size=1, max_size=40)


@given(ids, ids)
def test_a_token_names_its_run_and_hook_and_is_the_same_each_time(run: str, hook: str) -> None:
    token = RING.token("k2", run, hook)
    assert RING.read(token) == (run, hook)
    assert RING.token("k2", run, hook) == token
    assert token.isascii()
    assert not set(token) & set("/+=? &#%")


def test_the_newest_key_is_the_last() -> None:
    assert RING.newest == "k2"


def test_tokens_of_an_old_key_are_taken_until_the_key_is_gone() -> None:
    token = Keyring({"k1": OLD}).token("k1", "run", "hook:1")
    assert RING.read(token) == ("run", "hook:1")
    with pytest.raises(InvalidToken):
        Keyring({"k2": NEW}).read(token)


def test_a_key_id_does_not_vouch_for_another_secret() -> None:
    with pytest.raises(InvalidToken):
        Keyring({"k1": NEW}).read(RING.token("k1", "run", "hook:1"))


def test_the_tokens_of_two_hooks_cannot_be_mixed() -> None:
    mine = RING.token("k1", "run-a", "ask:1").split(".")
    other = RING.token("k1", "run-b", "ask:2").split(".")
    for place in (1, 2, 3):
        mixed = [*mine]
        mixed[place] = other[place]
        with pytest.raises(InvalidToken):
            RING.read(".".join(mixed))


def test_where_run_ends_and_hook_begins_is_part_of_the_signature() -> None:
    _, _, _, first = RING.token("k1", "ab", "c").split(".")
    _, _, _, second = RING.token("k1", "a", "bc").split(".")
    assert first != second


def test_every_cut_and_every_changed_character_is_refused() -> None:
    token = RING.token("k1", "run", "ask:1")
    for place in range(len(token)):
        with pytest.raises(InvalidToken):
            RING.read(token[:place])
        for other in "Aa0_-.~":
            if other != token[place]:
                with pytest.raises(InvalidToken):
                    RING.read(token[:place] + other + token[place + 1 :])


@given(st.text(max_size=60))
def test_any_other_text_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidToken):
        RING.read(text)


@pytest.mark.parametrize(
    "token",
    ["", "....", "k1...", "k1.YQ.YQ.", "k1.YQ.YQ.\ud800", "k1.\ud800.YQ.x", "k1.YQ.YQ.ü",
     "k1.YQ.YQ.YQ.YQ", "kÜ.YQ.YQ.x", "k1._w._w.x", "x" * 5_000],
)  # fmt: skip
def test_malformed_tokens_are_refused_by_name(token: str) -> None:
    with pytest.raises(InvalidToken):
        RING.read(token)


def test_only_the_canonical_spelling_of_a_token_is_taken() -> None:
    key, run, hook, mac = RING.token("k1", "a", "b").split(".")
    padded = base64.urlsafe_b64encode(b"a").decode()
    assert padded == f"{run}=="
    # The last character of "YQ" has bits to spare: "YR" decodes to the same byte.
    for spelling in (padded, "YR", f"{run}\n", f" {run}"):
        with pytest.raises(InvalidToken):
            RING.read(f"{key}.{spelling}.{hook}.{mac}")
    for spelling in (f"{mac}=", f"{mac}==", f"{mac} "):
        with pytest.raises(InvalidToken):
            RING.read(f"{key}.{run}.{hook}.{spelling}")


def test_a_token_cannot_be_made_with_a_key_that_is_gone() -> None:
    with pytest.raises(DefinitionError, match="'k0'"):
        RING.token("k0", "run", "hook")


@pytest.mark.parametrize("keys", [{}, {"k.1": OLD}, {"": OLD}, {"kü": OLD}, {"k1": b"short"}])
def test_a_ring_needs_keys_that_can_sign(keys: dict[str, bytes]) -> None:
    with pytest.raises(DefinitionError):
        Keyring(keys)


def test_secrets_do_not_show() -> None:
    assert "secret" not in repr(RING)
