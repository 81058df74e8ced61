"""The command line as a user has it: processes in a folder, with a module and a file of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepwell.adapters.local.wiring import open_ports
from stepwell.authoring.registry import Registry
from tests.laws import check_local

# The folder of the process must be found by our own doing (-P leaves it out).
COMMAND = (sys.executable, "-P", "-m", "stepwell.cli.main")
#: Far beyond what anything here takes: it only ends tests that hang.
_GUARD = 120.0
_LOOKS = 100
_LEFT_OUT = (
    "STEPWELL_DB",
    "STEPWELL_TABLE",
    "AWS_PROFILE",
    "NO_COLOR",
    "FORCE_COLOR",
    "PYTHONPATH",
    "PYTHONDONTWRITEBYTECODE",
)


@dataclass(frozen=True)
class Done:
    """A process that has ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Its data."""
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        """What it says went wrong."""
        return json.loads(self.err.splitlines()[-1])["error"]


class Running:
    """A process at work."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self._guard = threading.Timer(_GUARD, process.kill)
        self._guard.start()
        self._said = ""

    def says(self, text: str) -> str:
        """Wait for a line on stderr that holds a text."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._said += line
            if text in line:
                return line
        raise AssertionError(f"it never said {text!r}, but:\n{self._said}")

    def prints(self) -> str:
        """Wait for a line on stdout."""
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    def end(self) -> Done:
        """Wait for its end."""
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        # Not by `communicate`, which passes over what was read ahead of the lines waited for.
        with self.process:
            out, err = self.process.stdout.read(), self.process.stderr.read()
        self._guard.cancel()
        return Done(self.process.returncode, out, self._said + err)


class Shell:
    """A folder with the module `app`, in which commands are run.

    `bytecode` is where Python keeps what it compiled: most of what a process takes to start.
    """

    def __init__(self, folder: Path, bytecode: Path) -> None:
        self.folder = folder
        self._bytecode = bytecode
        self.module = folder / "app.py"
        shutil.copy(Path(__file__).with_name("app.py"), self.module)
        self._running: list[Running] = []

    def begin(self, *arguments: str, **environment: str) -> Running:
        """Start a command and leave it at work."""
        process = subprocess.Popen(
            [*COMMAND, *arguments],
            cwd=self.folder,
            env=self.environment(**environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        running = Running(process)
        self._running.append(running)
        return running

    def __call__(self, *arguments: str, stdin: str = "", **environment: str) -> Done:
        """Run a command to its end."""
        done = subprocess.run(
            [*COMMAND, *arguments],
            cwd=self.folder,
            env=self.environment(**environment),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=_GUARD,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def environment(self, **more: str) -> dict[str, str]:
        """The environment of a command: this one's, without what names files or colours."""
        kept = {name: value for name, value in os.environ.items() if name not in _LEFT_OUT}
        return {**kept, "PYTHONPYCACHEPREFIX": str(self._bytecode), **more}

    def started(self, target: str, given: Any = None) -> Any:
        """A run that was started and now waits."""
        done = self("run", target, "--input", json.dumps(given or []), "--wait", "0s", "--json")
        assert done.code == 6, done.err
        return done.json

    def answered(self, run: Any, payload: Any = None) -> None:
        """Answer the first open hook of a run that `started` gave."""
        token = run["hooks"][0]["token"]
        done = self("hooks", "resume", token, "--payload", json.dumps(payload))
        assert done.code == 0, done.err

    def run_of(self, run_id: str) -> Any:
        """A run as it stands."""
        return self("runs", "show", run_id, "--json").json

    def wait_for(self, run_id: str, holds: Callable[[Any], bool]) -> Any:
        """Look at a run until something holds of it."""
        run: Any = None
        for _ in range(_LOOKS):
            run = self.run_of(run_id)
            if holds(run):
                return run
        raise AssertionError(f"it never came to it: {run}")

    def change(self, module: str) -> None:
        """Put other code in the place of `app`."""
        self.module.write_text(module)
        # What was compiled before could pass for it: same size, same second.
        shutil.rmtree(self._bytecode / self.folder.relative_to(self.folder.anchor))

    def release(self, name: str) -> None:
        """Let the step `hold` of this name go on."""
        (self.folder / f"{name}.release").touch()

    def close(self, *, unchecked: str | None = None) -> None:
        """Kill what is left. What it left in its files has to obey the laws, or it says why not."""
        for running in self._running:
            if running.process.returncode is None:
                running.process.kill()
                running.end()
        for path in [] if unchecked else self.folder.rglob("*.db"):
            with open_ports(path) as local:
                check_local(local, Registry())
