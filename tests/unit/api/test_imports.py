"""What the API costs those who do not serve it."""

from __future__ import annotations

import subprocess
import sys


def test_a_worker_does_not_import_the_api() -> None:
    program = (
        "import sys, stepwell.adapters.aws.handlers.worker\n"
        "print([name for name in sys.modules if name.startswith('stepwell.api')"
        " or name.startswith('aws_lambda_powertools.event_handler')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
