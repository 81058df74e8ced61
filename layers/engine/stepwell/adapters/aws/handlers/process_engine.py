"""The engine of one process, with settings that are fresh at each message."""

from __future__ import annotations

from stepwell.adapters.aws.clock import system_fraction
from stepwell.adapters.aws.handlers.telemetry import count
from stepwell.adapters.aws.wiring import AwsDeployment
from stepwell.authoring.registry import Registry
from stepwell.engine.turn import Engine


class ProcessEngine:
    """Makes the engine on first use, since that needs the keys; then keeps its keys fresh."""

    def __init__(self, aws: AwsDeployment, registry: Registry) -> None:
        self._aws = aws
        self._registry = registry
        self._engine: Engine | None = None

    def get(self) -> Engine:
        """The engine. Raises `TransientError` when it never had keys and they cannot be read."""
        settings = self._aws.refresh()
        if self._engine is None:
            self._engine = Engine(
                self._aws.ports,
                settings,
                self._registry,
                system_fraction,
                on_near_limit=_count_near_limit,
                on_lag=_tell_lag,
            )
        self._engine.settings = settings
        return self._engine

    def close(self) -> None:
        """Let its threads go."""
        if self._engine is not None:
            self._engine.close()


def _count_near_limit(_: str) -> None:
    count("RunsNearLimit")


def _tell_lag(lag: int) -> None:
    count("SignalLag", lag)
