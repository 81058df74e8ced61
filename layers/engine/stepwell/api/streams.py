"""Streams: send signals, read them, look at subscriptions, mend what is parked."""

from __future__ import annotations

from typing import Annotated

from aws_lambda_powertools.event_handler import Request, Response
from aws_lambda_powertools.event_handler.openapi.params import Path, Query

from stepwell.api.bodies import read_json
from stepwell.api.endpoints import ClientProvider, Endpoint, Limit, actor, checked_size, reply
from stepwell.api.models import (
    MendAccepted,
    MendRequest,
    ParkedSignals,
    SignalPage,
    SignalsAccepted,
    SignalsRequest,
    StreamRun,
)
from stepwell.api.problems import Refusal
from stepwell.api.runs import BODIES, json_body, read_body
from stepwell.client import NewSignal
from stepwell.errors import DefinitionError
from stepwell.shapes import parked_shape, signal_shape, stream_shape

_Stream = Annotated[str, Path(max_length=128, description="Name of a stream.")]
_Step = Annotated[str, Path(max_length=128, description="Name of a step of the stream.")]
_Number = Annotated[int, Path(ge=0, description="Number of a signal; 0 is the step's start.")]
_Run = Annotated[
    str | None,
    Query(
        min_length=1,
        max_length=256,
        description="Name of the stream run; by default the shared one, `default`.",
    ),
]
_SMALLER = "ask for fewer with `limit`"


class Streams:
    """The routes of streams."""

    def __init__(self, client: ClientProvider, body_limit: int) -> None:
        self._client = client
        self._body_limit = body_limit

    def endpoints(self) -> tuple[Endpoint, ...]:
        """The routes, for `add_routes` to add."""
        return (*self._signals(), *self._parked())

    def _signals(self) -> tuple[Endpoint, ...]:
        return (
            Endpoint(
                method="GET",
                rule="/v1/streams/<stream>",
                handle=self.show,
                name="getStreamRun",
                summary="Look at a stream run and its subscriptions",
                group="streams",
                model=StreamRun,
                problems=("response_too_large",),
            ),
            Endpoint(
                method="POST",
                rule="/v1/streams/<stream>/signals",
                handle=self.emit,
                name="emitSignals",
                summary="Send signals to a stream run",
                group="streams",
                model=SignalsAccepted,
                status=202,
                body=json_body(SignalsRequest, required=True),
                problems=("stream_ended", "signal_rejected", "value_too_large", *BODIES),
            ),
            Endpoint(
                method="GET",
                rule="/v1/streams/<stream>/signals",
                handle=self.signals,
                name="listSignals",
                summary="Read the signals of a stream run",
                group="streams",
                model=SignalPage,
                problems=("response_too_large",),
            ),
        )

    def _parked(self) -> tuple[Endpoint, ...]:
        return (
            Endpoint(
                method="GET",
                rule="/v1/streams/<stream>/steps/<step>/parked",
                handle=self.parked,
                name="listParkedSignals",
                summary="Read the signals that a step could not handle",
                group="streams",
                model=ParkedSignals,
                problems=("subscription_not_found", "response_too_large"),
            ),
            Endpoint(
                method="POST",
                rule="/v1/streams/<stream>/steps/<step>/parked/<sequence>",
                handle=self.mend,
                name="mendSignal",
                summary="Have a parked signal handled again, or give it up",
                group="streams",
                model=MendAccepted,
                status=202,
                body=json_body(MendRequest, required=True),
                problems=("subscription_not_found", "signal_not_parked", "run_ended", *BODIES),
            ),
        )

    async def emit(
        self, request: Request, stream: _Stream, stream_run_id: _Run = None
    ) -> Response[SignalsAccepted]:
        """All of them, or none where one is refused. Their numbers are given on their way.

        They wait for a stream run that has not been started, and for steps that are at work.
        """
        event = request.resolved_event
        wanted = read_body(SignalsRequest, read_json(event, self._body_limit))
        news = [
            NewSignal(
                signal_type=each.type,
                payload=each.payload,
                metadata=each.metadata,
                idempotency_key=each.idempotency_key,
            )
            for each in wanted.signals
        ]
        try:
            sent = await self._client().emit_all(stream, news, stream_run_id=stream_run_id)
        except DefinitionError as error:
            raise Refusal("invalid_parameter", f"{error}.") from None
        return reply({"signals": [signal_shape(each) for each in sent]}, status=202)

    async def signals(
        self,
        stream: _Stream,
        *,
        stream_run_id: _Run = None,
        after: Annotated[int, Query(ge=0, description="Those above this number.")] = 0,
        before: Annotated[int | None, Query(ge=1, description="Those below this number.")] = None,
        type: Annotated[list[str] | None, Query(description="Of any of these types only.")] = None,
        source_run_id: Annotated[
            str | None, Query(max_length=256, description="Emitted by this run only.")
        ] = None,
        limit: Limit = 50,
    ) -> Response[SignalPage]:
        """They are numbered without gaps; ask again with `after` to go on where a page ended."""
        try:
            found = await self._client().signals(
                stream,
                stream_run_id=stream_run_id,
                after=after,
                before=before,
                types=type,
                source_run_id=source_run_id,
                limit=limit + 1,
            )
        except DefinitionError as error:
            raise Refusal("invalid_parameter", f"{error}.") from None
        page = [signal_shape(each) for each in found[:limit]]
        more = found[limit - 1].sequence if len(found) > limit else None
        return reply(checked_size({"signals": page, "next": more}, _SMALLER))

    async def show(self, stream: _Stream, stream_run_id: _Run = None) -> Response[StreamRun]:
        """How far it has come, and each of its steps. One that nobody has started is shown too."""
        try:
            found = await self._client().stream(stream, stream_run_id=stream_run_id)
        except DefinitionError as error:
            raise Refusal("invalid_parameter", f"{error}.") from None
        return reply(checked_size(stream_shape(found), "read it with the Python client"))

    async def parked(
        self, stream: _Stream, step: _Step, stream_run_id: _Run = None
    ) -> Response[ParkedSignals]:
        """With the error of each, and whether later ones wait for it."""
        found = await self._client().parked_signals(stream, step, stream_run_id=stream_run_id)
        body = {"signals": [parked_shape(each) for each in found]}
        return reply(checked_size(body, "read it with the Python client"))

    async def mend(
        self,
        request: Request,
        stream: _Stream,
        step: _Step,
        sequence: _Number,
        stream_run_id: _Run = None,
    ) -> Response[MendAccepted]:
        """A redriven signal is handled from its beginning, before those that are new."""
        event = request.resolved_event
        wanted = read_body(MendRequest, read_json(event, self._body_limit))
        await self._client().mend_signal(
            stream, step, sequence, wanted.action, stream_run_id=stream_run_id, actor=actor(event)
        )
        body = {"sequence": sequence, "action": wanted.action, "requested": True}
        return reply(body, status=202)
