"""The logger of authors: silent while history is gone through again, plain everywhere else."""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import Any

from stepwell.authoring.context import RUN, STEP


class _AuthorLogger(logging.LoggerAdapter[logging.Logger]):
    """Asks at each line where the code runs, for one object serves all runs of a process."""

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - the name is logging's
        """Whether a line of this level is said here and now."""
        run = RUN.get()
        return (run is None or not run.replaying) and super().isEnabledFor(level)

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        """Add to a line what it is about; what the author gives in `extra` stays."""
        kwargs["extra"] = {**_about(), **(kwargs.get("extra") or {})}
        return msg, kwargs


def _about() -> dict[str, Any]:
    step = STEP.get()
    if step is not None:
        return {"run_id": step.run_id, "step_id": step.step_id, "attempt": step.attempt}
    run = RUN.get()
    return {} if run is None else {"run_id": run.run_id}


#: The logger behind `current.logger`.
LOGGER = _AuthorLogger(logging.getLogger("stepwell.author"), {})
