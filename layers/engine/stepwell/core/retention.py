"""For how long runs are kept once they have ended, by how they ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from stepwell.core.durations import to_millis
from stepwell.core.records import Millis, RunStatus
from stepwell.errors import DefinitionError


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long a run is kept after its end, in milliseconds; None for ever.

    It is decided when a run ends: a change is about those that end from then on.
    """

    completed: Millis | None = None
    failed: Millis | None = None
    cancelled: Millis | None = None

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if value is not None and value <= 0:
                raise DefinitionError(f"retention of {each.name} runs: {value}, must be above 0")

    @classmethod
    def from_texts(cls, texts: Mapping[str, str]) -> Retention:
        """From durations such as "90d" by status; what is empty is kept for ever.

        Raises `DefinitionError`.
        """
        told: dict[str, Millis] = {}
        for each in fields(cls):
            text = texts.get(each.name, "")
            try:
                if text:
                    told[each.name] = to_millis(text)
            except ValueError as error:
                raise DefinitionError(f"retention of {each.name} runs: {error}") from None
        return cls(**told)

    def kept_until(self, status: RunStatus, ended_at: Millis) -> Millis | None:
        """Until when a run is kept that ended so, at that time."""
        kept: Millis | None = getattr(self, status.value.lower(), None)
        return None if kept is None else ended_at + kept
