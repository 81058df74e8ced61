"""A built function: its process, which may be killed at any moment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from tests.deployed.built import BuiltFunction

#: The Python that the layers were built for.
PYTHON = os.environ.get("STEPWELL_LAMBDA_PYTHON", sys.executable)


class Died(Exception):
    """The process ended in the middle of an invocation."""


class Raised(Exception):
    """The handler raised."""


class Function:
    """Starts its process when it is invoked, and keeps it warm."""

    def __init__(self, built: BuiltFunction, variables: Mapping[str, str], log: IO[bytes]) -> None:
        self.built = built
        self.variables = variables
        self.invocations = 0
        self._log = log
        self._process: subprocess.Popen[str] | None = None

    def invoke(self, event: Any, *, ahead: float) -> Any:
        """What the handler returns. Raises `Raised`, and `Died` if the process was killed."""
        process = self._started()
        self.invocations += 1
        invocation = {
            "event": event,
            "request_id": f"{self.built.name}-{self.invocations}",
            "timeout": self.built.timeout,
            "ahead": ahead,
        }
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(invocation) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            self.kill()
            raise Died(self.built.name)
        reply = json.loads(line)
        if "error" in reply:
            raise Raised(reply["error"])
        return reply["result"]

    def kill_now(self) -> None:
        """End the process at once, as Lambda or a failing machine does. For any thread."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def kill(self) -> None:
        """End the process and let go of it."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            script = str(Path(__file__).with_name("lambda_process.py"))
            folders = [str(folder) for folder in self.built.path]
            self._process = subprocess.Popen(
                [PYTHON, "-S", "-s", "-P", script, self.built.handler, *folders],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                text=True,
                cwd=folders[0],
                env=dict(self.variables),
            )
        return self._process
