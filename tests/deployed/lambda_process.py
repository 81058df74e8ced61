"""One execution environment of Lambda, as far as a handler can tell.

`python -S -s -P lambda_process.py HANDLER FOLDER…`. Without site-packages: what is not in the
folders or in the standard library cannot be imported, just as it will be in the function.

Reads invocations as lines of JSON, and answers each with a line of JSON. What is printed goes to
standard error. The machine's clock, for all that the handler imports, is ahead by the `ahead` of
the invocation, in seconds: nobody can wait a day.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
import traceback
from typing import Any

_time, _time_ns = time.time, time.time_ns
_ahead = [0.0]


class Context:
    """What Lambda tells a handler besides the event."""

    function_version = "$LATEST"
    memory_limit_in_mb = 1024
    client_context = identity = None

    def __init__(self, invocation: dict[str, Any]) -> None:
        self.function_name = os.environ["AWS_LAMBDA_FUNCTION_NAME"]
        self.invoked_function_arn = (
            f"arn:aws:lambda:us-east-1:123456789012:function:{self.function_name}"
        )
        self.aws_request_id = invocation["request_id"]
        self._ends = time.monotonic() + invocation["timeout"]

    def get_remaining_time_in_millis(self) -> int:
        """Milliseconds until the function is ended."""
        return max(0, int((self._ends - time.monotonic()) * 1000))


def answer(handler: Any, invocation: dict[str, Any]) -> dict[str, Any]:
    """What the handler returned or raised."""
    _ahead[0] = invocation["ahead"]
    try:
        return {"result": handler(invocation["event"], Context(invocation))}
    except Exception:
        return {"error": traceback.format_exc()}


def main(name: str, *folders: str) -> None:
    """Import the handler and serve invocations until the input ends."""
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    sys.path[:0] = folders
    time.time = lambda: _time() + _ahead[0]
    time.time_ns = lambda: _time_ns() + int(_ahead[0] * 1e9)
    module, _, function = name.rpartition(".")
    handler = getattr(importlib.import_module(module), function)
    for line in sys.stdin:
        replies.write(json.dumps(answer(handler, json.loads(line))) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
