"""For how long a local engine keeps ended runs, as the environment says."""

from __future__ import annotations

import os

from stepwell.core.retention import Retention


def retention_from_env() -> Retention:
    """By `STEPWELL_RETAIN_COMPLETED`, `…_FAILED` and `…_CANCELLED`, such as "90d"; else for ever.

    Raises `DefinitionError` on what is no duration.
    """
    names = ("completed", "failed", "cancelled")
    return Retention.from_texts(
        {name: os.environ.get(f"STEPWELL_RETAIN_{name.upper()}", "") for name in names}
    )
