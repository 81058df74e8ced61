"""Answers HTTP requests: starts, reads and cancels runs, shows hooks and takes their answers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from stepwell.adapters.aws.environment import ClientEnvironment
from stepwell.adapters.aws.handlers.telemetry import adopt_package_logs, count, logger, metrics
from stepwell.adapters.aws.wiring import open_aws
from stepwell.api import http_api
from stepwell.client import Client

adopt_package_logs()
_aws = open_aws(ClientEnvironment.from_env())
_api = http_api(lambda token=None: Client(_aws.ports, _aws.refresh(token)))
_loop = asyncio.Runner()


@logger.inject_lambda_context(clear_state=False, log_event=False)
@metrics.log_metrics(capture_cold_start_metric=True)
def handler(event: Mapping[str, Any], context: LambdaContext) -> Mapping[str, Any]:
    """What Lambda calls."""
    response = _loop.run(_api.resolve_async(event, context))
    count(f"Http{response['statusCode'] // 100}xx")
    return response
