"""The emulator's process: ministack, with a clock that can be set. Runs in its own environment.

Three things that it gets wrong are set right here; `README.md` says which.

`python emulator_process.py FOLDER`; everything else comes from the environment, as ministack reads
it. SQS and Scheduler go by the machine's clock, unless `FOLDER/stands` holds the time at which
their clocks stand. The seconds in `FOLDER/ahead` come on top of it for Scheduler alone.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from ministack.app import main
from ministack.core import iam_actions
from ministack.services import eventbridge, lambda_svc, scheduler, sqs

#: Seconds between two looks at what is due; ten, if left alone.
TICK = 0.1


class Clock(ModuleType):
    """The module `time` with another `time()`."""

    def __init__(self, read: Callable[[], float]) -> None:
        super().__init__("time")
        self.time = read

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


def number_in(file: Path) -> float | None:
    """What the file says; None if there is none."""
    try:
        return float(file.read_text())
    except FileNotFoundError:
        return None


def clock(folder: Path, *added: str) -> Clock:
    """A clock that goes by the files of the folder."""

    def read() -> float:
        stands = number_in(folder / "stands")
        now = time.time() if stands is None else stands
        return now + sum(number_in(folder / name) or 0.0 for name in added)

    return Clock(read)


_concurrency = lambda_svc._sqs_esm_concurrency
_action = iam_actions.extract_iam_action
_resource_arn = iam_actions.extract_resource_arn


def concurrency(*arguments: Any) -> int:
    """How many batches may be in flight, also where a template's parameter says it: as text."""
    return int(_concurrency(*arguments))


def action(*arguments: Any) -> str | None:
    """What a request needs the permission for: a batch of SQS that for each of its messages."""
    found: str | None = _action(*arguments)
    return found and found.removesuffix("Batch") if arguments[0] == "sqs" else found


def resource_arn(service: str, method: str, path: str, *rest: Any) -> str:
    """What a request is about, for IAM: a schedule with the group that it is in."""
    arn: str = _resource_arn(service, method, path, *rest)
    if service != "scheduler" or ":schedule/default/" not in arn:
        return arn
    _, body, query = rest[:3]
    group = query.get("groupName") or json.loads(body or b"{}").get("GroupName") or "default"
    name = group[0] if isinstance(group, list) else group
    return arn.replace(":schedule/default/", f":schedule/{name}/")


if __name__ == "__main__":
    folder = Path(sys.argv.pop())
    sqs.time = eventbridge.time = clock(folder)  # what Scheduler sends, eventbridge stamps
    scheduler.time = clock(folder, "ahead")
    scheduler._SCHEDULE_TICK_INTERVAL = TICK
    eventbridge._SCHEDULER_TICK_INTERVAL = TICK
    lambda_svc._sqs_esm_concurrency = concurrency
    iam_actions.extract_iam_action = action
    iam_actions.extract_resource_arn = resource_arn
    main()
