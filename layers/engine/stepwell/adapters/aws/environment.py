"""What a function or a client is told of its deployment, as validated models.

Inside Lambda it stands in environment variables; on a machine it is read from the outputs of the
stack. Each function is given only what it uses, so each has a model of its own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Self

from botocore.exceptions import ClientError
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from stepwell.adapters.aws.clients import AWS_ERRORS, client_config, error_code, is_transient
from stepwell.adapters.aws.session import region_of
from stepwell.engine.ports import TransientError
from stepwell.errors import StackNotFound, UsageError

if TYPE_CHECKING:
    from botocore.session import Session

_PREFIX = "STEPWELL_"

_Text = Annotated[str, StringConstraints(min_length=1)]
_Url = Annotated[str, StringConstraints(pattern=r"^https?://\S+$")]
_FifoUrl = Annotated[str, StringConstraints(pattern=r"^https?://\S+\.fifo$")]
_Arn = Annotated[str, StringConstraints(pattern=r"^arn:aws[a-z-]*:\S+$")]
_Module = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$")]


class Environment(BaseModel):
    """What every part of a deployment needs. A field `run_queue_url` is read from the variable
    `STEPWELL_RUN_QUEUE_URL`, or from the stack's output `RunQueueUrl`.
    """

    # Built on first use: a process uses one of the models.
    model_config = ConfigDict(frozen=True, defer_build=True)

    table: _Text
    bucket: _Text
    run_queue_url: _FifoUrl
    signal_queue_url: _FifoUrl
    inline_limit: int | None = Field(default=None, ge=0, le=65_536)

    @classmethod
    def from_env(cls, variables: Mapping[str, str] | None = None) -> Self:
        """From environment variables. Raises `UsageError` naming each that is missing or wrong."""
        variables = os.environ if variables is None else variables
        names = {field: variable_of(field) for field in cls.model_fields}
        # The template sets what it has no value for to nothing.
        given = {f: variables[v] for f, v in names.items() if variables.get(v)}
        return cls._of(given, names, "the environment variables of this deployment are not right")

    @classmethod
    def from_stack(cls, name: str, session: Session) -> Self:
        """From a stack's outputs. Raises `UsageError` if it cannot be read or is of another kind:
        `StackNotFound` if it is not there.
        """
        outputs = _outputs(name, session)
        names = {field: output_of(field) for field in cls.model_fields}
        given = {field: outputs[o] for field, o in names.items() if o in outputs}
        return cls._of(given, names, f"stack {name!r} does not have the outputs of a deployment")

    @classmethod
    def _of(cls, given: Mapping[str, Any], names: Mapping[str, str], what: str) -> Self:
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            wrong = [
                f"{names[str(each['loc'][0])]}: "
                + ("is missing" if each["type"] == "missing" else each["msg"])
                for each in error.errors(include_input=False, include_url=False)
            ]
        raise UsageError(f"{what}: {'; '.join(wrong)}")


class ClientEnvironment(Environment):
    """What starts runs and answers hooks: the API, the command line, a client in other code."""

    keys_secret: _Text


class StepEnvironment(ClientEnvironment):
    """What runs authors' code. `api_url` is for that code: hooks are answered at `/hooks/TOKEN`."""

    step_queue_url: _Url
    api_url: _Url | None = None
    workflows: _Module = "workflows"


class WorkerEnvironment(StepEnvironment):
    """What takes turns. The limits are the `Limits` of each run; None stands for the default.

    The last three say for how long ended runs are kept, such as "90d"; None is for ever.
    """

    inbox_queue_url: _Url
    run_queue_arn: _Arn
    signal_queue_arn: _Arn
    signal_dead_letter_url: _FifoUrl
    schedule_group: _Text
    schedule_role_arn: _Arn
    schedule_dead_letter_arn: _Arn
    max_receive_count: int = Field(default=10, ge=1)
    event_limit: int | None = Field(default=None, ge=1)
    history_limit: int | None = Field(default=None, ge=1)
    step_limit: int | None = Field(default=None, ge=1)
    idle_hop_limit: int | None = Field(default=None, ge=1)
    depth_limit: int | None = Field(default=None, ge=1)
    retain_completed: _Text | None = None
    retain_failed: _Text | None = None
    retain_cancelled: _Text | None = None


class InboxEnvironment(ClientEnvironment):
    """What forwards messages from outside."""

    inbox_queue_url: _Url
    inbox_dead_letter_url: _Url


def variable_of(field: str) -> str:
    """The environment variable of a field."""
    return _PREFIX + field.upper()


def output_of(field: str) -> str:
    """The stack output of a field."""
    return "".join(part.capitalize() for part in field.split("_"))


def _outputs(name: str, session: Session) -> dict[str, str]:
    region = region_of(session)
    try:
        client: Any = session.create_client("cloudformation", config=client_config())
        (stack,) = client.describe_stacks(StackName=name)["Stacks"]
    except AWS_ERRORS as error:
        if is_transient(error):
            raise TransientError(f"AWS: {error}") from error
        if isinstance(error, ClientError) and error_code(error) == "ValidationError":
            raise StackNotFound(f"no stack {name!r} in {region}, for these credentials") from None
        raise UsageError(f"stack {name!r} in {region} cannot be read: {error}") from error
    return {each["OutputKey"]: each["OutputValue"] for each in stack.get("Outputs", ())}
