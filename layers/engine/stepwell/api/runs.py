"""Runs: start, look at, list, cancel."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from aws_lambda_powertools.event_handler import Request, Response
from aws_lambda_powertools.event_handler.openapi.params import Header, Path, Query
from pydantic import BaseModel, ValidationError

from stepwell.api.bodies import JSON, read_json
from stepwell.api.endpoints import (
    REPLAYED,
    ClientProvider,
    Cursor,
    Endpoint,
    Limit,
    RunId,
    actor,
    checked_size,
    page_of,
    prefix,
    reply,
)
from stepwell.api.models import (
    CancelAccepted,
    CancelRequest,
    DeleteAccepted,
    EventPage,
    Run,
    RunPage,
    StartRequest,
)
from stepwell.api.problems import Refusal, flaw, pointer
from stepwell.client import Client
from stepwell.core.attributes import Scalar, read_wanted
from stepwell.core.records import AttentionKind, RunStatus
from stepwell.errors import DefinitionError, UsageError
from stepwell.shapes import event_shape, run_shape, run_summary

M = TypeVar("M", bound=BaseModel)

_NO_VALUES = "ask again with values=false, and read the values with the Python client"

Values = Annotated[bool, Query(description="Whether values come with it, or null in their place.")]
Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=256,
        description="The same key and input start one run, as long as its record is kept.",
    ),
]


def json_body(model: type[BaseModel], *, required: bool) -> dict[str, Any]:
    """What the OpenAPI document says of a body."""
    return {"required": required, "content": {JSON: {"schema": model.model_json_schema()}}}


def read_body(model: type[M], body: Any) -> M:
    """A body as its model. Raises `Refusal`."""
    try:
        return model.model_validate(body)
    except ValidationError as error:
        errors = [flaw(pointer(each["loc"]), each["msg"]) for each in error.errors()]
        raise Refusal(
            "invalid_body", "Correct the body and send it again.", errors=errors
        ) from None


#: What can be wrong with a body.
BODIES = ("bad_body", "body_too_large", "unsupported_media_type", "invalid_body")


class Runs:
    """The routes of runs."""

    def __init__(self, client: ClientProvider, body_limit: int) -> None:
        self._client = client
        self._body_limit = body_limit

    def endpoints(self) -> tuple[Endpoint, ...]:
        """The routes, for `add_routes` to add."""
        return (*self._changing(), *self._reading())

    def _changing(self) -> tuple[Endpoint, ...]:
        return (
            Endpoint(
                method="POST",
                rule="/v1/workflows/<workflow>/runs",
                handle=self.start,
                name="startRun",
                summary="Start a run",
                group="runs",
                model=Run,
                status=202,
                headers={"Location": "Where the run is.", **REPLAYED},
                body=json_body(StartRequest, required=False),
                problems=(
                    "workflow_not_found",
                    "input_rejected",
                    "idempotency_conflict",
                    "value_too_large",
                    *BODIES,
                ),
            ),
            Endpoint(
                method="POST",
                rule="/v1/runs/<run_id>/cancel",
                handle=self.cancel,
                name="cancelRun",
                summary="Ask for a run to be cancelled",
                group="runs",
                model=CancelAccepted,
                status=202,
                headers={"Location": "Where the run is."},
                body=json_body(CancelRequest, required=False),
                problems=("run_not_found", "run_ended", *BODIES),
            ),
            Endpoint(
                method="DELETE",
                rule="/v1/runs/<run_id>",
                handle=self.delete,
                name="deleteRun",
                summary="Delete a run that has ended",
                group="runs",
                model=DeleteAccepted,
                status=202,
                problems=("run_not_found", "run_not_ended"),
            ),
        )

    def _reading(self) -> tuple[Endpoint, ...]:
        return (
            Endpoint(
                method="GET",
                rule="/v1/runs",
                handle=self.listing,
                name="listRuns",
                summary="List runs, newest first",
                group="runs",
                model=RunPage,
                problems=("bad_cursor",),
            ),
            Endpoint(
                method="GET",
                rule="/v1/runs/<run_id>",
                handle=self.show,
                name="getRun",
                summary="Look at a run and at what it waits for",
                group="runs",
                model=Run,
                problems=("run_not_found", "response_too_large"),
            ),
            Endpoint(
                method="GET",
                rule="/v1/runs/<run_id>/events",
                handle=self.events,
                name="listEvents",
                summary="Read a run's history",
                group="runs",
                model=EventPage,
                problems=("run_not_found", "response_too_large"),
            ),
        )

    async def start(
        self,
        request: Request,
        workflow: Annotated[str, Path(max_length=128, description="Name of a workflow.")],
        key: Key = None,
    ) -> Response[Run]:
        """The run will happen once this has answered; it is found at `Location`.

        With a key, the same start again gives the same run, and `Idempotent-Replayed: true`.
        """
        event = request.resolved_event
        wanted = read_body(StartRequest, read_json(event, self._body_limit, optional=True))
        client = self._starter(key, wanted)
        handle = await client.start_named(workflow, wanted.input)
        request.context["run_id"] = handle.id
        headers = {"Location": f"{prefix(event)}/v1/runs/{handle.id}"}
        if handle.repeated:
            headers |= dict.fromkeys(REPLAYED, "true")
        return reply(await _shown(client, handle.id), status=202, headers=headers)

    def _starter(self, key: str | None, wanted: StartRequest) -> Client:
        try:
            return self._client().with_options(
                idempotency_key=key, tags=tuple(wanted.tags), context=wanted.context
            )
        except (DefinitionError, UsageError) as error:
            # Texts that hold no valid Unicode; lengths have been looked at.
            raise Refusal("invalid_parameter", f"{error}.") from None

    async def listing(
        self,
        *,
        workflow: Annotated[
            str | None, Query(max_length=128, description="Of this workflow only.")
        ] = None,
        status: Annotated[RunStatus | None, Query(description="With this status only.")] = None,
        attention: Annotated[
            AttentionKind | None,
            Query(description="Those only that an operator has to look at, for this reason."),
        ] = None,
        tag: Annotated[list[str] | None, Query(description="With all of these tags only.")] = None,
        attribute: Annotated[
            list[str] | None,
            Query(description="With all of these attributes only, each as `name=value`."),
        ] = None,
        limit: Limit = 50,
        cursor: Cursor = None,
    ) -> Response[RunPage]:
        """A run that was just started may not be in it yet. Values are not shown here.

        No index holds tags and attributes: a page may be short, or empty, while there is a cursor.
        """
        wanted = _attributes(attribute or [])
        client = self._client()
        body = await page_of(
            lambda most: client.list_runs(
                workflow=workflow,
                status=status,
                attention=attention,
                tags=tag or (),
                attributes=wanted,
                limit=most,
                cursor=cursor,
            ),
            run_summary,
            "runs",
            limit,
            cursor,
        )
        return reply(body)

    async def show(self, request: Request, run_id: RunId, values: Values = True) -> Response[Run]:
        """Its input, its result or error, what it waits for, and why it needs somebody."""
        header = await self._client().get(run_id)
        request.context["run_id"] = run_id
        shape = run_shape(header)
        if not values:
            shape = _without_values(shape)
        return reply(checked_size(shape, _NO_VALUES))

    async def events(
        self,
        request: Request,
        run_id: RunId,
        after: Annotated[int, Query(ge=0, description="Those above this number.")] = 0,
        limit: Limit = 50,
        values: Values = True,
    ) -> Response[EventPage]:
        """Events are numbered without gaps; ask again with `after` to go on where a page ended."""
        client = self._client()
        while True:
            # One more than wanted tells whether there are more.
            history = await client.history(run_id, after=after, limit=limit + 1)
            request.context["run_id"] = run_id
            events = [event_shape(each) for each in history[:limit]]
            if not values:
                events = [_without_values(each) for each in events]
            more = len(history) > limit
            body = {"run_id": run_id, "events": events, "next": after + limit if more else None}
            try:
                return reply(checked_size(body, _NO_VALUES))
            except Refusal:
                if limit == 1:
                    raise
                limit = max(1, limit // 4)

    async def cancel(self, request: Request, run_id: RunId) -> Response[CancelAccepted]:
        """Its workflow is told where it waits, and may clean up: it ends a little later."""
        event = request.resolved_event
        wanted = read_body(CancelRequest, read_json(event, self._body_limit, optional=True))
        client = self._client()
        header = await client.get(run_id)
        request.context["run_id"] = run_id
        if header.status.terminal and header.continued_to is None:
            detail = f"It ended as {header.status}; there is nothing left to cancel."
            raise Refusal("run_ended", detail, run_id=run_id, run_status=header.status.value)
        await _cancel(client, run_id, wanted.reason, actor(event))
        body = {"run_id": run_id, "requested": True, "status": header.status.value}
        return reply(body, status=202, headers={"Location": f"{prefix(event)}/v1/runs/{run_id}"})

    async def delete(self, request: Request, run_id: RunId) -> Response[DeleteAccepted]:
        """All that it holds goes; that there was such a run stays known for 30 days."""
        await self._client().delete(run_id, actor=actor(request.resolved_event))
        request.context["run_id"] = run_id
        return reply({"run_id": run_id, "requested": True}, status=202)


def _attributes(given: list[str]) -> dict[str, Scalar]:
    try:
        return dict(read_wanted(each) for each in given)
    except UsageError as error:
        errors = [{"message": str(error), "parameter": "attribute"}]
        detail = "Correct the parameters and ask again."
        raise Refusal("invalid_parameter", detail, errors=errors) from None


async def _cancel(client: Client, run_id: str, reason: str | None, by: str | None) -> None:
    try:
        await client.cancel(run_id, reason, actor=by)
    except UsageError as error:
        raise Refusal("invalid_body", f"{error}.", errors=[flaw("/reason", str(error))]) from None


async def _shown(client: Client, run_id: str) -> dict[str, Any]:
    """A run that was just started. Its input may be large, and its caller has it."""
    shape = run_shape(await client.get(run_id))
    try:
        return checked_size(shape, _NO_VALUES)
    except Refusal:
        return _without_values(shape)


def _without_values(shape: dict[str, Any]) -> dict[str, Any]:
    values = {"input", "result", "payload", "context"}
    return {name: None if name in values else value for name, value in shape.items()}
