"""Takes dead letters, and wakes runs whose waits are overdue."""

from __future__ import annotations

import gc

gc.disable()  # nothing that is imported is garbage, and looking for it takes a cold start 30 ms
from collections.abc import Mapping
from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from stepwell.adapters.aws.handlers.sweeper import Sweeper
from stepwell.adapters.aws.handlers.telemetry import adopt_package_logs, logger, metrics

adopt_package_logs()
_sweeper = Sweeper.from_env()
gc.freeze()  # all of it stays: no later search has to look at it
gc.enable()


# Never the event, whatever the environment says: it holds payloads and tokens.
@logger.inject_lambda_context(log_event=False)
@metrics.log_metrics(capture_cold_start_metric=True)
def handler(event: Mapping[str, Any], context: LambdaContext) -> Mapping[str, Any]:
    """What Lambda calls."""
    return _sweeper.handle(event, context)
