"""The signing key of a local file: made once, kept in it, shared by all who open it."""

from __future__ import annotations

import secrets

from stepwell.adapters.local.database import Database
from stepwell.core.tokens import Keyring

_SELECT = "SELECT key_id, secret FROM signing_keys ORDER BY place"


def keyring_of(database: Database) -> Keyring:
    """The file's keyring; its first key is made here."""
    rows = database.query(_SELECT)
    if not rows:
        # Whoever comes second adopts the key that is there.
        database.change(
            "INSERT INTO signing_keys (place, key_id, secret) VALUES (1, 'k1', ?)"
            " ON CONFLICT DO NOTHING",
            secrets.token_bytes(32),
        )
        rows = database.query(_SELECT)
    return Keyring({key_id: bytes(secret) for key_id, secret in rows})
