"""The keys that sign hook tokens, from Secrets Manager.

The secret's value is a JSON object of key ids and secrets, oldest first: `{"k1": "…", "k2": "…"}`.
The last key signs, and all are accepted. Processes read it again every five minutes, so a new key
comes in two steps:

1. put it in front of the key that signs: `{"k1": "…", "k3": "<new>", "k2": "…"}`;
2. after ten minutes, when every process accepts it, move it to the end.

A key may go when no hook that it signed is open any more: the rows of hooks name their keys.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

from stepwell.adapters.aws.clients import (
    AWS_ERRORS,
    client_config,
    raise_mapped,
    refuse_broken_replies,
)
from stepwell.core.records import Millis
from stepwell.core.tokens import Keyring
from stepwell.engine.ports import Clock, TransientError
from stepwell.errors import DefinitionError, UsageError

if TYPE_CHECKING:
    from botocore.session import Session

#: After how long the secret is read again.
FRESH: Millis = 300_000
#: How soon it may be read again for a token whose key is not known: anybody can make one up.
_PATIENCE: Millis = 60_000

_LOG = logging.getLogger("stepwell.aws")


class KeySecret:
    """The keyring of a deployment. It changes: when the secret does, or is due to be read."""

    def __init__(self, session: Session, secret: str, clock: Clock) -> None:
        self._session = session
        self._secret = secret
        self._clock = clock
        self._client: Any = None
        self._keyring: Keyring | None = None
        self._read_at: Millis = 0

    @property
    def keyring(self) -> Keyring:
        """The keyring as last read; read now if it never was."""
        return self._keyring or self.refresh()

    def refresh(self, token: str | None = None) -> Keyring:
        """Read the secret if that is due, or if a token names a key that is not known.

        What was read before stands while AWS cannot be reached, and while the secret holds what
        cannot be used. If nothing was, `TransientError` and `UsageError` are raised. Blocks.
        """
        known = self._keyring
        if known is not None and not self._due(known, token):
            return known
        try:
            self._keyring = keyring_of(self._secret, self._fetch())
        except TransientError:
            if known is None:
                raise
        except UsageError as error:
            if known is None:
                raise
            _LOG.error("the keys read before are kept: %s", error)
        self._read_at = self._clock.now()
        return self._keyring or self.keyring

    def _due(self, known: Keyring, token: str | None) -> bool:
        age = self._clock.now() - self._read_at
        unknown = token is not None and token.partition(".")[0] not in known.keys
        return age >= (_PATIENCE if unknown else FRESH)

    def _fetch(self) -> Any:
        try:
            if self._client is None:  # made on first use: not every process needs the keys
                self._client = self._session.create_client("secretsmanager", config=client_config())
                refuse_broken_replies(self._client)
            return self._client.get_secret_value(SecretId=self._secret).get("SecretString")
        except AWS_ERRORS as error:
            raise_mapped(error)


def keyring_of(name: str, text: Any) -> Keyring:
    """The keyring in a secret's text. No error shows any of the text."""
    what = f"secret {name!r} has to hold a JSON object of key ids and secrets"
    try:
        pairs = json.loads(text, object_pairs_hook=_Pairs)
    except (TypeError, ValueError):
        raise UsageError(what) from None
    if not isinstance(pairs, _Pairs) or not all(isinstance(value, str) for _, value in pairs):
        raise UsageError(what)
    keys = {key: value.encode() for key, value in pairs}
    if len(keys) != len(pairs):
        raise UsageError(f"{what}, each id once")
    try:
        return Keyring(keys)
    except DefinitionError as error:
        raise UsageError(f"secret {name!r}: {error}") from None


class _Pairs(list[tuple[str, Any]]):
    """A JSON object in the order of its keys, with those that stand there twice."""
