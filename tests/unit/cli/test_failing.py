"""Exit codes of what AWS says."""

from __future__ import annotations

import pytest
from botocore.exceptions import (
    ClientError,
    EndpointConnectionError,
    NoCredentialsError,
    ProfileNotFound,
    SSOTokenLoadError,
    TokenRetrievalError,
)

from stepwell.cli.failing import ExitCode, exit_code, show
from stepwell.engine.ports import TransientError
from stepwell.errors import StackNotFound, UsageError


def refused(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "no"}}, "Query")


@pytest.mark.parametrize(
    "error",
    [
        refused("AccessDeniedException"),
        refused("AccessDenied"),
        refused("UnrecognizedClientException"),
        refused("InvalidClientTokenId"),
        refused("SignatureDoesNotMatch"),
        refused("InvalidSignatureException"),
        NoCredentialsError(),
        SSOTokenLoadError(profile_name="me", error_msg="gone"),
        TokenRetrievalError(provider="sso", error_msg="expired"),
    ],
)
def test_who_is_not_let_in_gets_a_code_of_its_own(error: Exception) -> None:
    assert exit_code(error) is ExitCode.NOT_ALLOWED


@pytest.mark.parametrize("outer", [UsageError, TransientError])
def test_the_cause_tells_who_is_not_let_in(outer: type[Exception]) -> None:
    error = outer("cannot be read")
    error.__cause__ = refused("ExpiredTokenException")
    assert exit_code(error) is ExitCode.NOT_ALLOWED


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (refused("ValidationException"), ExitCode.FAILURE),
        (refused("ResourceNotFoundException"), ExitCode.FAILURE),
        (EndpointConnectionError(endpoint_url="https://x"), ExitCode.FAILURE),
        (ProfileNotFound(profile="me"), ExitCode.USAGE),
        (StackNotFound("no stack"), ExitCode.NOT_FOUND),
        (UsageError("too long"), ExitCode.USAGE),
        (PermissionError("a file"), ExitCode.FAILURE),
    ],
)
def test_other_failures_are_no_matter_of_being_let_in(error: Exception, code: ExitCode) -> None:
    assert exit_code(error) is code


@pytest.mark.parametrize("error", [refused("AccessDenied"), NoCredentialsError()])
def test_what_aws_says_is_told_in_one_line(
    error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    show(error, as_json=False)
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("Error: AWS: ")
    assert "--profile" in line
