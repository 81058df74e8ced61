"""What `make build-local` made, and a Python that sees nothing else.

The interpreter starts isolated and without its site-packages; on its path are, as in Lambda, the
function's folder and the layers' `python` folders.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cfnlint.decode import cfn_yaml

ROOT = Path(__file__).parents[2]
BUILD = ROOT / ".aws-sam-local" / "build"
TEMPLATE: dict[str, Any] = cfn_yaml.load(str(BUILD / "template.yaml"))
LAYERS = [
    BUILD / each["Properties"]["ContentUri"] / "python"
    for each in TEMPLATE["Resources"].values()
    if each["Type"] == "AWS::Serverless::LayerVersion"
]
FUNCTIONS: dict[str, dict[str, Any]] = {
    name: each["Properties"]
    for name, each in TEMPLATE["Resources"].items()
    if each["Type"] == "AWS::Serverless::Function"
}

_ARN = "arn:aws:sqs:eu-west-1:123456789012:"
_URL = "https://sqs.eu-west-1.amazonaws.com/123456789012/"
_VALUES = {
    "STEPWELL_TABLE": "table",
    "STEPWELL_BUCKET": "bucket",
    "STEPWELL_RUN_QUEUE_URL": f"{_URL}run.fifo",
    "STEPWELL_RUN_QUEUE_ARN": f"{_ARN}run.fifo",
    "STEPWELL_SIGNAL_QUEUE_URL": f"{_URL}signal.fifo",
    "STEPWELL_SIGNAL_QUEUE_ARN": f"{_ARN}signal.fifo",
    "STEPWELL_SIGNAL_DEAD_LETTER_URL": f"{_URL}signal-dead.fifo",
    "STEPWELL_INBOX_QUEUE_URL": f"{_URL}inbox",
    "STEPWELL_INBOX_DEAD_LETTER_URL": f"{_URL}inbox-dead",
    "STEPWELL_STEP_QUEUE_URL": f"{_URL}step",
    "STEPWELL_API_URL": "https://api.example.com",
    "STEPWELL_SCHEDULE_GROUP": "group",
    "STEPWELL_SCHEDULE_ROLE_ARN": "arn:aws:iam::123456789012:role/schedules",
    "STEPWELL_SCHEDULE_DEAD_LETTER_ARN": f"{_ARN}schedule-dead",
    "STEPWELL_KEYS_SECRET": "arn:aws:secretsmanager:eu-west-1:123456789012:secret:keys",
    "STEPWELL_MAX_RECEIVE_COUNT": "10",
    "STEPWELL_WORKFLOWS": "workflows",
    "STEPWELL_INLINE_LIMIT": "8192",
    "STEPWELL_EVENT_LIMIT": "5000",
    "STEPWELL_HISTORY_LIMIT": "2000000",
    "STEPWELL_STEP_LIMIT": "4000",
    "STEPWELL_IDLE_HOP_LIMIT": "20",
    "STEPWELL_DEPTH_LIMIT": "10",
    "STEPWELL_RETAIN_COMPLETED": "",
    "STEPWELL_RETAIN_FAILED": "",
    "STEPWELL_RETAIN_CANCELLED": "",
}
#: Where the outside world of the examples would be; nothing is asked of it here.
_OUTSIDE = Path(tempfile.gettempdir()) / "nobody.sqlite3"


def path_of(function: str) -> list[Path]:
    """What is on the path of a function, beside the standard library."""
    return [BUILD / FUNCTIONS[function]["CodeUri"], *LAYERS]


def module_of(function: str) -> str:
    """The module that holds the handler."""
    module, _, _ = FUNCTIONS[function]["Handler"].rpartition(".")
    return str(module)


def environment_of(function: str) -> dict[str, str]:
    """The variables that the template gives a function, with values of the right form."""
    given: Mapping[str, Any] = {
        **TEMPLATE["Globals"]["Function"]["Environment"]["Variables"],
        **FUNCTIONS[function]["Environment"]["Variables"],
    }
    told = {name: value for name, value in given.items() if isinstance(value, str)}
    told |= {name: _VALUES[name] for name in given if name.startswith("STEPWELL_")}
    return told | {"AWS_DEFAULT_REGION": "eu-west-1", "EXAMPLES_OUTSIDE": str(_OUTSIDE)}


def run(function: str, code: str) -> Any:
    """Run code in the function's place. What it prints last, as JSON."""
    before = f"import sys; sys.path[:0] = {[str(each) for each in path_of(function)]!r}\n"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-B", "-W", "error", "-c", before + code],
        env=environment_of(function) | {"PATH": os.defpath},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
