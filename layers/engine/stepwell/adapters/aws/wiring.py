"""All AWS adapters of one process, made at once from its environment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

from stepwell.adapters.aws.blobs import S3Blobs
from stepwell.adapters.aws.clients import Clients
from stepwell.adapters.aws.clock import SystemClock, SystemIds
from stepwell.adapters.aws.environment import (
    ClientEnvironment,
    Environment,
    StepEnvironment,
    WorkerEnvironment,
    variable_of,
)
from stepwell.adapters.aws.maps import DynamoMaps
from stepwell.adapters.aws.queue import InboxQueue, SqsQueue, SqsStepQueue
from stepwell.adapters.aws.schedules import ScheduleTarget
from stepwell.adapters.aws.secret import KeySecret
from stepwell.adapters.aws.session import open_session, region_of
from stepwell.adapters.aws.signal_queue import SqsSignalQueue
from stepwell.adapters.aws.signal_timers import AskingSignalTimers, AwsSignalTimers
from stepwell.adapters.aws.store import DynamoStore
from stepwell.adapters.aws.streams import DynamoStreams
from stepwell.adapters.aws.table import Table
from stepwell.adapters.aws.timers import AwsTimers
from stepwell.core.messages import MapItem, StepMessage
from stepwell.core.payload import Sizes
from stepwell.core.records import Millis
from stepwell.core.retention import Retention
from stepwell.core.tokens import Keyring
from stepwell.engine.ports import Clock, Ports
from stepwell.engine.settings import Limits, Settings
from stepwell.errors import UsageError

if TYPE_CHECKING:
    from botocore.session import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsDeployment:
    """The AWS adapters by their own types, and as the `Ports` that the engine sees."""

    clients: Clients
    table: Table
    store: DynamoStore
    blobs: S3Blobs
    queue: SqsQueue
    signals: SqsSignalQueue
    ports: Ports
    _sizes: Sizes = field(repr=False)
    _limits: Limits = field(repr=False)
    _retention: Retention = field(repr=False)
    _keys: KeySecret | None = field(repr=False)

    @property
    def settings(self) -> Settings:
        """Settings with the keys as last read. Raises `UsageError` where no keys are to be had."""
        return self._with(self._secret().keyring)

    def refresh(self, token: str | None = None) -> Settings:
        """The settings, after reading the keys again if that is due or a token's key is not known.

        Call it where an invocation begins. Blocks; raises `TransientError`, `UsageError`.
        """
        return self._with(self._secret().refresh(token))

    def _with(self, keyring: Keyring) -> Settings:
        return Settings(
            keyring=keyring, sizes=self._sizes, limits=self._limits, retention=self._retention
        )

    def _secret(self) -> KeySecret:
        if self._keys is None:
            raise UsageError(f"this process has no {variable_of('keys_secret')}")
        return self._keys

    def close(self) -> None:
        """Wait for the calls that are under way, then close the connections."""
        self.clients.close()
        self.table.close()

    def __enter__(self) -> AwsDeployment:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_aws(
    environment: Environment,
    session: Session | None = None,
    *,
    clock: Clock | None = None,
) -> AwsDeployment:
    """The adapters of a deployment. Nothing is asked of AWS yet.

    Timers and dispatched steps work with a `WorkerEnvironment`; all others refuse to be used, and
    have the worker send signals later.
    Raises `UsageError` without a region.
    """
    session = session or open_session()
    region = region_of(session)
    clock = clock or SystemClock()
    clients = Clients(session)
    table = Table(environment.table, region=region, session=session)
    store = DynamoStore(table, clients)
    blobs = S3Blobs(clients, environment.bucket)
    queue = SqsQueue(clients, environment.run_queue_url)
    signals = SqsSignalQueue(clients, environment.signal_queue_url)
    inline_limit = environment.inline_limit
    return AwsDeployment(
        clients=clients,
        table=table,
        store=store,
        blobs=blobs,
        queue=queue,
        signals=signals,
        ports=Ports(
            store=store,
            blobs=blobs,
            queue=queue,
            steps=_steps(environment, clients),
            maps=DynamoMaps(table, clients),
            timers=_timers(environment, clients, clock, queue),
            streams=DynamoStreams(table, clients),
            signals=signals,
            signal_timers=_signal_timers(environment, clients, clock, signals),
            clock=clock,
            ids=SystemIds(),
        ),
        _sizes=Sizes() if inline_limit is None else Sizes(inline_limit=inline_limit),
        _limits=_limits(environment),
        _retention=_retention(environment),
        _keys=KeySecret(session, environment.keys_secret, clock)
        if isinstance(environment, ClientEnvironment)
        else None,
    )


def _limits(environment: Environment) -> Limits:
    if not isinstance(environment, WorkerEnvironment):
        return Limits()  # nobody else takes turns
    told = {
        "events": environment.event_limit,
        "bytes": environment.history_limit,
        "steps": environment.step_limit,
        "idle_hops": environment.idle_hop_limit,
        "depth": environment.depth_limit,
    }
    return Limits(**{name: value for name, value in told.items() if value is not None})


def _retention(environment: Environment) -> Retention:
    if not isinstance(environment, WorkerEnvironment):
        return Retention()  # nobody else ends runs
    told = {
        "completed": environment.retain_completed,
        "failed": environment.retain_failed,
        "cancelled": environment.retain_cancelled,
    }
    return Retention.from_texts({name: text for name, text in told.items() if text is not None})


def _steps(environment: Environment, clients: Clients) -> SqsStepQueue | _NoSteps:
    if not isinstance(environment, StepEnvironment):
        return _NoSteps()
    return SqsStepQueue(clients, environment.step_queue_url)


def _timers(
    environment: Environment, clients: Clients, clock: Clock, queue: SqsQueue
) -> AwsTimers | _NoTimers:
    if not isinstance(environment, WorkerEnvironment):
        return _NoTimers()
    return AwsTimers(
        clients,
        clock,
        queue=queue,
        inbox=InboxQueue(clients, environment.inbox_queue_url),
        target=_target(environment, environment.run_queue_arn),
    )


def _signal_timers(
    environment: Environment, clients: Clients, clock: Clock, signals: SqsSignalQueue
) -> AwsSignalTimers | AskingSignalTimers:
    if not isinstance(environment, WorkerEnvironment):
        return AskingSignalTimers(signals)
    return AwsSignalTimers(
        clients,
        clock,
        queue=signals,
        inbox=InboxQueue(clients, environment.inbox_queue_url),
        target=_target(environment, environment.signal_queue_arn),
    )


def _target(environment: WorkerEnvironment, queue_arn: str) -> ScheduleTarget:
    return ScheduleTarget(
        group=environment.schedule_group,
        queue_arn=queue_arn,
        role_arn=environment.schedule_role_arn,
        dead_letter_arn=environment.schedule_dead_letter_arn,
    )


class _NoSteps:
    """Stands for the step queue where no code of authors runs."""

    async def send(self, attempt: StepMessage) -> NoReturn:
        """Refuse."""
        raise UsageError(f"step {attempt.name!r}: only the worker dispatches steps")

    async def send_items(self, items: Sequence[MapItem], *, delay: Millis = 0) -> NoReturn:
        """Refuse."""
        raise UsageError(f"{len(items)} items, in {delay} ms: only the worker dispatches steps")


class _NoTimers:
    """Stands for the timers where only the worker may use them."""

    async def start(self, run_id: str, wait_id: str, arm: int, due: Millis) -> NoReturn:
        """Refuse."""
        raise UsageError(f"wait {wait_id!r} of run {run_id!r}, {arm}, {due}: only the worker times")

    async def cancel(self, run_id: str, wait_id: str, arm: int) -> NoReturn:
        """Refuse."""
        raise UsageError(f"wait {wait_id!r} of run {run_id!r}, {arm}: only the worker times")
