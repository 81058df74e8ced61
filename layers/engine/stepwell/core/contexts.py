"""A run's context: one typed value that its workflow carries along, and its steps can read.

It is carried as JSON by its declared type, like every other value, but always in place: it is part
of the first event and of each dispatched attempt, so it is small.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stepwell.core.payload import Codec, codec, digest
from stepwell.core.records import Payload
from stepwell.errors import PayloadError, PayloadTooLarge, UsageError

#: Bytes of JSON that a context may take.
LARGEST_CONTEXT = 16_384


@dataclass(frozen=True, slots=True)
class ContextType:
    """The declared type of a context; `make` builds the one of runs that are started without."""

    codec: Codec
    make: Callable[[], Any]

    def encode(self, value: Any) -> Payload:
        """JSON text of a context, its fields validated. Raises `PayloadError`."""
        return checked_context(self.codec.encode(value), self.codec.owner)

    def initial(self, given: Payload | None) -> Payload:
        """The context that a run begins with. Raises `PayloadError` if there is none that fits."""
        if given is not None:
            return self.encode(self.codec.decode(given))
        try:
            made = self.make()
        except Exception as error:
            reason = f"none was given, and it cannot be made without: {error}"
            raise PayloadError(self.codec.owner, "$", reason) from None
        return self.encode(made)


def begun_with(declared: ContextType | None, given: Any, workflow: str) -> Payload | None:
    """What a run begins with: the given context, or the one its type makes; None without a type.

    Raises `PayloadError` on one that does not fit, `UsageError` where the workflow has none.
    """
    if declared is not None:
        return declared.initial(None) if given is None else declared.encode(given)
    if given is not None:
        raise UsageError(
            f"workflow {workflow!r} has no context: declare @workflow(context=YourModel)"
        )
    return None


def named_context(given: Any, workflow: str) -> Payload | None:
    """A given context as JSON, without the code; the worker sees whether it fits.

    Raises `PayloadError` on what is no JSON, or too large.
    """
    if given is None:
        return None
    owner = f"context of workflow {workflow!r}"
    return checked_context(codec(Any, owner).encode(given), owner)


def identified(start: str, context: str) -> str:
    """The digest of a start to which a context was given: with another one it is another start."""
    return digest(f"{start} {context}")


def checked_context(text: Payload, owner: str) -> Payload:
    """The text, if it is not too large for a context. Raises `PayloadTooLarge`."""
    size = len(text.encode())
    if size > LARGEST_CONTEXT:
        raise PayloadTooLarge(owner, size, LARGEST_CONTEXT)
    return text
