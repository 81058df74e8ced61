"""A scripted model: three rules for a large one, and a count of how often it was asked."""

from __future__ import annotations

from collections.abc import Sequence

from examples.outside import outside
from stepwell import current


async def answer(recent: Sequence[str], said: Sequence[str]) -> str:
    """What the model answers to what was said, the last of it above all.

    A provider that takes keys, as this one does, asks no money for the second time.
    """
    outside().request("model asked", current.idempotency_key, " | ".join(said))
    text = said[-1]
    if text.endswith("?"):
        return f"I remember {len(recent)} things; I do not know."
    if text in recent:
        return "You have said that."
    return f"You said {len(text.split())} words."
