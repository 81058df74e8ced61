"""What a stream run has come to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class StreamWorkflowResult:
    """How the steps of a stream run have ended, by name, and what they came to.

    `step_states` are "terminated" or "cancelled"; `step_results` hold what `set_result` said.
    """

    status: Literal["completed"] = "completed"
    step_states: Mapping[str, str] = field(default_factory=dict)
    step_results: Mapping[str, Any] = field(default_factory=dict)

    def get_result(self, step: str) -> Any:
        """What the step of exactly this name came to, None if it said nothing.

        Raises `KeyError` when the stream has no such step.
        """
        if step not in self.step_states:
            known = ", ".join(map(repr, self.step_states)) or "none"
            raise KeyError(f"no step {step!r} on this stream; there are {known}")
        return self.step_results.get(step)
