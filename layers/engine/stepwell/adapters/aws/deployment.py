"""A deployment on AWS as a client finds it: by the environment, or by the name of its stack."""

from __future__ import annotations

from stepwell.adapters.aws.environment import ClientEnvironment
from stepwell.adapters.aws.session import open_session
from stepwell.adapters.aws.wiring import AwsDeployment, open_aws
from stepwell.client import Client

_open: dict[ClientEnvironment, AwsDeployment] = {}


def client_from_env() -> Client:
    """The client of the deployment that `STEPWELL_TABLE` and its like name; opened once.

    It has the keys as they stand now: a process that lives long asks again. Blocks. Raises
    `TransientError`, and `UsageError` naming each variable that is missing or wrong.
    """
    environment = ClientEnvironment.from_env()
    if environment not in _open:
        _open[environment] = open_aws(environment)
    deployment = _open[environment]
    return Client(deployment.ports, deployment.refresh())


def open_stack(
    name: str, *, profile: str | None = None, region: str | None = None
) -> AwsDeployment:
    """The deployment that a stack's outputs describe. Blocks. Close it after use.

    Profile and region are by default those that AWS tools take. Raises `StackNotFound`,
    `TransientError`, `UsageError`, and what botocore raises of a profile.
    """
    session = open_session(profile, region)
    return open_aws(ClientEnvironment.from_stack(name, session), session)
