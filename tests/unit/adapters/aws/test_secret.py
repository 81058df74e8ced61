"""The text of the secret that holds the keys."""

from __future__ import annotations

import pytest

from stepwell.adapters.aws.secret import keyring_of
from stepwell.errors import UsageError

LONG = "a-secret-of-enough-letters"


def test_the_last_key_signs_and_all_are_accepted() -> None:
    ring = keyring_of("keys", f'{{"k1": "{LONG}", "k3": "{LONG}x", "k2": "{LONG}y"}}')
    assert ring.newest == "k2"
    assert ring.read(ring.token("k3", "run", "hook")) == ("run", "hook")


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "no json",
        "null",
        "[]",
        f'[["k1", "{LONG}"]]',
        f'"{LONG}"',
        "{}",
        f'{{"k1": ["{LONG}"]}}',
        '{"k1": 7}',
        '{"k1": {"nested": "x"}}',
        '{"k1": "too short"}',
        f'{{"k.1": "{LONG}"}}',
        f'{{"": "{LONG}"}}',
        f'{{"k1": "{LONG}", "k1": "{LONG}x"}}',
    ],
)
def test_a_secret_that_cannot_be_used_is_refused_and_not_shown(text: str | None) -> None:
    with pytest.raises(UsageError, match="'keys'") as caught:
        keyring_of("keys", text)
    assert LONG not in str(caught.value)
    assert caught.value.__cause__ is None
