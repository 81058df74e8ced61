"""Hook tokens: `key id . run . hook . mac`. Unguessable, made again at will, stored nowhere.

The newest key of a ring signs; every key of it is accepted, so that keys can be rotated while
hooks are open. A forged token is refused without a read.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field

from stepwell.errors import DefinitionError, InvalidToken

_TOKEN_LIMIT = 4096


@dataclass(frozen=True, slots=True)
class Keyring:
    """Signing keys by id, oldest first; the last one signs. Secrets never show in a repr."""

    keys: Mapping[str, bytes] = field(repr=False)

    def __post_init__(self) -> None:
        if not self.keys:
            raise DefinitionError("a keyring needs at least one key")
        for key_id, secret in self.keys.items():
            if not (key_id.isascii() and key_id.isalnum()) or len(secret) < 16:
                raise DefinitionError(
                    f"key {key_id!r}: ids are alphanumeric, secrets at least 16 bytes"
                )

    @property
    def newest(self) -> str:
        """The id of the key that signs."""
        return next(reversed(list(self.keys)))

    def token(self, key_id: str, run_id: str, hook_id: str) -> str:
        """The token of a hook under a key; the same on every call."""
        secret = self.keys.get(key_id)
        if secret is None:
            raise DefinitionError(f"key {key_id!r} of an open hook is not in the keyring")
        return ".".join((key_id, _pack(run_id), _pack(hook_id), _mac(secret, run_id, hook_id)))

    def read(self, token: str) -> tuple[str, str]:
        """Run id and hook id of a genuine token. Raises `InvalidToken` on any other text."""
        parts = token.split(".") if len(token) <= _TOKEN_LIMIT and token.isascii() else ()
        if len(parts) != 4:
            raise InvalidToken("this is not a hook token")
        key_id, run, hook, mac = parts
        secret = self.keys.get(key_id)
        try:
            run_id, hook_id = _unpack(run), _unpack(hook)
        except ValueError:  # not base64, or not UTF-8 inside
            raise InvalidToken("this is not a hook token") from None
        # Compared even for an unknown key, so that both take the same time.
        expected = _mac(secret or b"\0" * 32, run_id, hook_id)
        if not hmac.compare_digest(expected.encode(), mac.encode()) or secret is None:
            raise InvalidToken("this is not a hook token")
        return run_id, hook_id


def _mac(secret: bytes, run_id: str, hook_id: str) -> str:
    # The length keeps "ab"+"c" and "a"+"bc" apart.
    text = f"{len(run_id)}|{run_id}|{hook_id}".encode()
    return _encode(hmac.digest(secret, text, hashlib.sha256))


def _pack(text: str) -> str:
    return _encode(text.encode())


def _unpack(text: str) -> str:
    data = base64.urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
    if _encode(data) != text:
        raise ValueError("not canonical")
    return data.decode()


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
