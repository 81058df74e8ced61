"""Logs as JSON and metrics in embedded format, the same for all functions.

What a record is about (`run_id`, `step_id`, `message_id`) is appended to every line while it is
worked on. Payloads and tokens never are: no body and no error that quotes one may be logged.
"""

from __future__ import annotations

import logging
import os

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit

logger = Logger(use_rfc3339=True, serialize_stacktrace=False)
metrics = Metrics(namespace=os.environ.get("POWERTOOLS_METRICS_NAMESPACE", "Stepwell"))


def adopt_package_logs() -> None:
    """Have all that the package logs written as the functions' own lines are."""
    package = logging.getLogger("stepwell")
    package.handlers = list(logger.handlers)
    package.setLevel(logger.log_level)
    # Lambda's own handler at the root would write every line a second time.
    package.propagate = False


def count(name: str, value: int = 1) -> None:
    """Add to a metric that counts."""
    metrics.add_metric(name=name, unit=MetricUnit.Count, value=value)


def milliseconds(name: str, value: int) -> None:
    """Add to a metric of a duration."""
    metrics.add_metric(name=name, unit=MetricUnit.Milliseconds, value=value)


def seconds(name: str, value: float) -> None:
    """Add to a metric of a duration."""
    metrics.add_metric(name=name, unit=MetricUnit.Seconds, value=value)
