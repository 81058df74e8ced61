"""The functions as Lambda loads them: environment, logs and metrics."""

from __future__ import annotations

import gc
import importlib.util
import json
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from stepwell.adapters.aws.handlers.telemetry import logger, metrics
from stepwell.authoring.registry import registry
from stepwell.core.messages import Wake
from stepwell.errors import UsageError
from tests.contract.given import run
from tests.integration.aws.deployment import Deployed, LambdaContext, variables

FUNCTIONS = Path(__file__).parents[3] / "functions"
Load = Callable[[str], ModuleType]

FLOWS = """
from stepwell import hook, step, workflow

@workflow
async def secretive(word: str) -> str:
    answer = await hook("answer")
    return await whisper(word + answer)

@step(dispatch="worker")
async def whisper(word: str) -> str:
    return word
"""


class Stdout:
    """Standard output as it is at the moment: pytest replaces it for each test."""

    def write(self, text: str) -> None:
        sys.stdout.write(text)

    def flush(self) -> None:
        sys.stdout.flush()


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what a test defines is published: a list of runs asks for those of each workflow."""
    for kind in ("_workflows", "_steps"):
        monkeypatch.setattr(registry, kind, [{}])


@pytest.fixture
def load(deployed: Deployed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    """Loads a function's `app.py` in the environment of the deployment."""
    (tmp_path / "flows_of_a_test.py").write_text(FLOWS)
    monkeypatch.syspath_prepend(str(tmp_path))
    given = {**variables(deployed.aws.clients.sqs), "STEPWELL_WORKFLOWS": "flows_of_a_test"}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    package = logging.getLogger("stepwell")
    before = package.handlers, package.level, package.propagate

    loaded: list[Any] = []
    (handler,) = logger.handlers
    assert isinstance(handler, logging.StreamHandler)
    stream = handler.setStream(Stdout())

    def load(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(f"{name}_app", FUNCTIONS / name / "app.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        loaded.append(getattr(module, f"_{name}"))
        return module

    yield load
    for each in loaded:
        each.close()
        each._aws.close()
    gc.unfreeze()
    gc.enable()  # also if one could not be loaded
    package.handlers, package.level, package.propagate = before
    handler.setStream(stream)
    sys.modules.pop("flows_of_a_test", None)
    metrics.clear_metrics()


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize("name", ["worker", "step", "inbox", "sweeper"])
def test_a_function_is_thin(name: str) -> None:
    assert len((FUNCTIONS / name / "app.py").read_text().splitlines()) < 30


@pytest.mark.parametrize("name", ["worker", "step", "inbox", "sweeper"])
def test_the_garbage_collector_rests_only_while_a_function_is_loaded(load: Load, name: str) -> None:
    load(name)
    assert gc.isenabled()


@pytest.mark.parametrize("name", ["worker", "step", "inbox", "sweeper"])
def test_a_function_without_its_environment_says_what_is_missing(
    load: Load, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STEPWELL_TABLE")
    monkeypatch.delenv("STEPWELL_BUCKET")
    with pytest.raises(UsageError, match="STEPWELL_TABLE: is missing; STEPWELL_BUCKET"):
        load(name)


def test_a_run_goes_through_all_functions_and_nothing_secret_is_logged(
    deployed: Deployed,
    load: Load,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("POWERTOOLS_LOGGER_LOG_EVENT", "true")
    worker, step, inbox, sweeper = map(load, ("worker", "step", "inbox", "sweeper"))
    start = {"type": "start", "workflow": "secretive", "input": {"word": "WORD"}}
    deployed.send("inbox", start)
    deployed.deliver("inbox", handle=inbox.handler)
    deployed.deliver("run.fifo", handle=worker.handler)
    (open_hook,) = run(deployed.client.list_hooks()).items
    deployed.send("inbox", {"type": "resume_hook", "token": "forged.YQ.YQ.TOKEN", "payload": 1})
    deployed.send("inbox", {"type": "resume_hook", "token": open_hook.token, "payload": "ANSWER"})
    deployed.deliver("inbox", handle=inbox.handler)
    deployed.deliver("run.fifo", handle=worker.handler)
    deployed.deliver("step", handle=step.handler)
    deployed.deliver("run.fifo", handle=worker.handler)
    assert deployed.header(open_hook.run_id).result == '"WORDANSWER"'
    deployed.deliver("inbox-dead", handle=sweeper.handler)
    sweeper.handler({"source": "aws.events"}, LambdaContext())
    out = capsys.readouterr().out
    for secret in ("WORD", "ANSWER", "TOKEN", open_hook.token, open_hook.token.rpartition(".")[2]):
        assert secret not in out
    told = [json.loads(line) for line in out.splitlines()]
    about = [line for line in told if line.get("run_id") == open_hook.run_id]
    assert any(line.get("step_id") == "whisper:1" for line in about)
    counted = {name for line in told if "_aws" in line for name in line}
    assert counted >= {
        "AttemptsReported",
        "DeadLetters",
        "InboxDone",
        "InboxRefused",
        "OldestOverdueWait",
        "StepsDispatched",
        "TurnTime",
        "TurnsWaiting",
    }


def test_what_the_package_logs_is_json_with_the_run_it_is_about(
    deployed: Deployed, load: Load, capsys: pytest.CaptureFixture[str]
) -> None:
    worker = load("worker")
    deployed.send(
        "run.fifo",
        json.dumps(
            {
                "type": "start",
                "run_id": "run-1",
                "workflow": "not_here",
                "version": "1",
                "input": "{}",
                "input_digest": "d",
                "seed": "s",
                "created_at": 1,
            }
        ),
    )
    worker.handler(deployed.event("run.fifo"), LambdaContext())
    (line,) = [each for each in lines(capsys) if "is blocked" in each.get("message", "")]
    assert (line["level"], line["run_id"]) == ("WARNING", "run-1")


def test_a_bad_body_is_not_logged(
    deployed: Deployed, load: Load, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, queue in (("worker", "run.fifo"), ("step", "step"), ("inbox", "inbox")):
        deployed.send(queue, '{"type": "SECRET", "run_id": ["SECRET"]}')
        load(name).handler(deployed.event(queue), LambdaContext())
    out = capsys.readouterr().out
    assert "SECRET" not in out
    assert "union_tag_invalid" in out


@pytest.mark.breaks_laws("a row is spoilt")
def test_a_row_that_is_spoilt_is_not_logged(
    deployed: Deployed, load: Load, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"pk": {"S": "R#spoilt"}, "sk": {"S": "A"}, "status": {"S": "SECRET"}}
    deployed.aws.table.put(row)
    deployed.send("run.fifo", Wake(run_id="spoilt", cause="c"))
    assert len(deployed.deliver("run.fifo", handle=load("worker").handler)) == 1
    out = capsys.readouterr().out
    assert "SECRET" not in out
    assert "RunHeader: " in out
