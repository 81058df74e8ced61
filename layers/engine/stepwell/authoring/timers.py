"""Time and randomness in workflow code: durable waits, and values that replay alike.

Outside a run these are the plain ones, so that a workflow can be called as a function.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import random as _random
import time
import uuid
from typing import Any

from stepwell.authoring.context import RUN, STEP, coloured
from stepwell.core.durations import due_at, to_datetime
from stepwell.errors import DurationLike, UsageError


def sleep(when: DurationLike | dt.datetime) -> Any:
    """Wait for a duration, or until an aware datetime; await it in an `async` workflow.

    The wait is durable: the run may be suspended and costs storage only. A time that has passed
    returns at once. Raises `ValueError` on a bad duration, `UsageError` in a step.
    """
    if STEP.get() is not None:
        raise UsageError(
            "sleep: a step cannot wait durably; wait in the workflow, or use asyncio.sleep "
            "or time.sleep inside the step"
        )
    run = RUN.get()
    if run is None:
        return _plain_sleep(when)
    return coloured(run, run.sleep(due_at(when, run.now())))


def now() -> dt.datetime:
    """The run's time, UTC: that of the last outcome it was told; the same on every replay."""
    run = RUN.get()
    if run is None:
        return dt.datetime.now(dt.UTC)  # noqa: TID251 - outside a run time is the plain one
    return to_datetime(run.now())


def uuid4() -> uuid.UUID:
    """A random UUID, the same on every replay, different in every run."""
    run = RUN.get()
    if run is None:
        return uuid.uuid4()  # noqa: TID251 - outside a run randomness is the plain one
    return uuid.UUID(bytes=run.random_bytes("uuid4"), version=4)


def random() -> float:
    """A random number in [0, 1), the same on every replay, different in every run."""
    run = RUN.get()
    if run is None:
        return _random.random()  # noqa: TID251 - outside a run it is the plain one
    return int.from_bytes(run.random_bytes("random")[:7], "big") / (1 << 56)


def _plain_sleep(when: DurationLike | dt.datetime) -> Any:
    here = due_at(now(), 0)
    seconds = max(due_at(when, here) - here, 0) / 1000
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        time.sleep(seconds)
        return None
    return asyncio.sleep(seconds)
