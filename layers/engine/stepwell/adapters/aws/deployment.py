"""A deployment on AWS as a client finds it: by the environment, or by the name of its stack."""

from __future__ import annotations

import os

import boto3.session

from stepwell.adapters.aws.environment import ClientEnvironment
from stepwell.adapters.aws.wiring import AwsDeployment, open_aws
from stepwell.client import Client

_open: dict[ClientEnvironment, AwsDeployment] = {}


def client_from_env() -> Client:
    """The client of the deployment that `STEPWELL_TABLE` and its like name; opened once per process.

    It has the keys as they stand now: a process that lives long asks again. Blocks. Raises
    `TransientError`, and `UsageError` naming each variable that is missing or wrong.
    """
    environment = ClientEnvironment.from_env()
    if environment not in _open:
        _open[environment] = open_aws(environment, _session(None, None))
    deployment = _open[environment]
    return Client(deployment.ports, deployment.refresh())


def open_stack(
    name: str, *, profile: str | None = None, region: str | None = None
) -> AwsDeployment:
    """The deployment that a stack's outputs describe. Blocks. Close it after use.

    Profile and region are by default those that AWS tools take. Raises `StackNotFound`,
    `TransientError`, `UsageError`, and what botocore raises of a profile.
    """
    session = _session(profile, region)
    return open_aws(ClientEnvironment.from_stack(name, session), session)


def _session(profile: str | None, region: str | None) -> boto3.session.Session:
    # Lambda and the AWS command line know AWS_REGION; boto3 only AWS_DEFAULT_REGION.
    region = region or os.environ.get("AWS_REGION") or None
    return boto3.session.Session(profile_name=profile, region_name=region)
