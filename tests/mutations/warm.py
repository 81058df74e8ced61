"""A process that has imported what tests need, but not what is mutated, and forks for each run.

    python -m tests.mutations.warm [module ...]

It reads a line of JSON for each run (`Wanted`) and answers with one (`Ended`). A run is a process
of its own, with the mutation it is to see; all that it saves is importing pytest, moto and the like
again, which takes longer than most runs.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, NoReturn

import botocore.loaders
import pytest

from tests.mutations import conditions  # noqa: F401  (warmed, too)
from tests.mutations.mutation import ROOT

_WARMED = (
    "_hypothesis_pytestplugin",
    "aws_lambda_powertools",
    "hypothesis.strategies",
    "jsonschema_rs",
    "moto.dynamodb",
    "moto.dynamodb.responses",
    "moto.s3.responses",
    "moto.scheduler.responses",
    "moto.sqs.responses",
    "pydantic",
    "pydantic._internal._generate_schema",
    "pynamodb.connection.base",
    "pynamodb.models",
    "sqlite3",
)
#: Not ours: what the outer pytest tells its own processes, and what a plugin was told.
_FOREIGN = (
    "PYTEST_XDIST_WORKER",
    "PYTEST_XDIST_WORKER_COUNT",
    "PYTEST_XDIST_TESTRUNUID",
    "PYTEST_XDIST_AUTO_NUM_WORKERS",
    "PYTEST_ADDOPTS",
    "PYTEST_CURRENT_TEST",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A run: its tests, the variables of its environment, its folder, and how long it may take."""

    tests: list[str]
    environment: dict[str, str]
    folder: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a run ended: pytest's exit code, None when it was cut, and what it printed."""

    code: int | None
    output: str


class Warm:
    """A warm process, as the one who asks it sees it."""

    def __init__(self, bytecode: Path | None, *more: str) -> None:
        """`bytecode` is a folder for compiled modules; None for where they are kept anyway.

        `more` are modules to import besides: of the package those that no mutation can reach.
        """
        environment = {name: value for name, value in os.environ.items() if name not in _FOREIGN}
        if bytecode is not None:
            environment.pop("PYTHONDONTWRITEBYTECODE", None)
            environment["PYTHONPYCACHEPREFIX"] = str(bytecode)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.mutations.warm", *more],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, wanted: Wanted) -> Ended:
        """Have a run made."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(asdict(wanted)), file=self._process.stdin, flush=True)
        return Ended(**json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def serve(lines: IO[str], answers: IO[str]) -> None:
    """Answer each line."""
    for line in lines:
        print(json.dumps(asdict(_run(Wanted(**json.loads(line))))), file=answers, flush=True)


def _run(wanted: Wanted) -> Ended:
    folder = Path(wanted.folder)
    log = folder / "output"
    child = os.fork()
    if not child:
        _be_the_run(wanted, folder, log)
    code = _wait(child, wanted.seconds)
    return Ended(code=code, output=log.read_text(encoding="utf-8", errors="replace"))


def _be_the_run(wanted: Wanted, folder: Path, log: Path) -> NoReturn:
    code = 70
    try:
        os.setsid()
        target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(target, 1)
        os.dup2(target, 2)
        os.environ.update(wanted.environment)
        code = int(
            pytest.main(
                [
                    "-q",
                    "--tb=native",  # the others look for modules in all that is warm
                    *("-o", "faulthandler_timeout=45"),  # where a test hangs, it says so
                    f"--basetemp={folder / 'tmp'}",
                    *("-p", "no:cacheprovider"),
                    *("-p", "no:xdist"),
                    *("-p", "tests.mutations.plugin"),
                    # What is warm is not rewritten, and need not be.
                    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),
                    *wanted.tests,
                ]
            )
        )
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _wait(child: int, seconds: float) -> int | None:
    """The exit code of a run; None if it had to be cut."""
    cut = threading.Event()

    def kill() -> None:
        cut.set()
        os.killpg(child, signal.SIGKILL)

    timer = threading.Timer(seconds, kill)
    timer.start()
    _, status = os.waitpid(child, 0)
    timer.cancel()
    timer.join()
    return None if cut.is_set() else os.waitstatus_to_exitcode(status)


def _read_once() -> None:
    """Let all runs share the descriptions of AWS's services, which take long to read."""
    loader = botocore.loaders.create_loader()
    for service in ("dynamodb", "s3", "scheduler", "sqs"):
        for kind in ("service-2", "endpoint-rule-set-1"):
            loader.load_service_model(service, kind)
    for data in ("endpoints", "partitions", "sdk-default-configuration", "_retry"):
        loader.load_data(data)
    botocore.loaders.create_loader = lambda *_: loader


if __name__ == "__main__":
    for module in (*_WARMED, *sys.argv[1:]):
        importlib.import_module(module)
    _read_once()
    # What is warm lives as long as a run. Pytest collects garbage often, and would go through all.
    gc.collect()
    gc.freeze()
    serve(sys.stdin, sys.stdout)
