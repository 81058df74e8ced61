"""The AWS session that all clients of a process are made from.

It is botocore's own: what boto3 adds to it, resources and managed transfers, is not used here, and
importing that costs a cold start some 15 ms.
"""

from __future__ import annotations

import os

from botocore.session import Session

from stepwell.errors import UsageError


def open_session(profile: str | None = None, region: str | None = None) -> Session:
    """A session; profile and region are by default those that AWS tools take.

    Raises what botocore raises of a profile.
    """
    session = Session(profile=profile)
    # Lambda and the AWS command line know AWS_REGION; botocore only AWS_DEFAULT_REGION.
    if region := region or os.environ.get("AWS_REGION"):
        session.set_config_variable("region", region)
    session.get_scoped_config()  # an unknown profile is refused here, not by the first client
    return session


def region_of(session: Session) -> str:
    """The region of a session. Raises `UsageError` if it has none."""
    region: str | None = session.get_config_variable("region")
    if region is None:
        raise UsageError("no AWS region: set AWS_REGION, or a region in the profile")
    return region
