"""Inboxes of runs: send, read; and have a run look again."""

from __future__ import annotations

from aws_lambda_powertools.event_handler import Request, Response

from stepwell.api.bodies import read_json
from stepwell.api.endpoints import (
    ClientProvider,
    Endpoint,
    RunId,
    actor,
    checked_size,
    prefix,
    reply,
)
from stepwell.api.models import Inbox, InboxEntry, InboxRequest, ResumeAccepted
from stepwell.api.runs import BODIES, json_body, read_body
from stepwell.shapes import entry_shape

_LOCATION = {"Location": "Where the run is."}


class Inboxes:
    """The routes of inboxes."""

    def __init__(self, client: ClientProvider, body_limit: int) -> None:
        self._client = client
        self._body_limit = body_limit

    def endpoints(self) -> tuple[Endpoint, ...]:
        """The routes, for `add_routes` to add."""
        return (
            Endpoint(
                method="POST",
                rule="/v1/runs/<run_id>/inbox",
                handle=self.put,
                name="putInbox",
                summary="Put an entry into a run's inbox",
                group="runs",
                model=InboxEntry,
                status=202,
                headers=_LOCATION,
                body=json_body(InboxRequest, required=True),
                problems=(
                    "run_not_found",
                    "run_ended",
                    "entry_conflict",
                    "value_too_large",
                    *BODIES,
                ),
            ),
            Endpoint(
                method="GET",
                rule="/v1/runs/<run_id>/inbox",
                handle=self.entries,
                name="listInbox",
                summary="Read a run's inbox",
                group="runs",
                model=Inbox,
                problems=("run_not_found", "response_too_large"),
            ),
            Endpoint(
                method="POST",
                rule="/v1/runs/<run_id>/resume",
                handle=self.resume,
                name="resumeRun",
                summary="Let a run go on that is paused, or waits for input",
                group="runs",
                model=ResumeAccepted,
                status=202,
                headers=_LOCATION,
                problems=("run_not_found", "run_ended"),
            ),
        )

    async def put(self, request: Request, run_id: RunId) -> Response[InboxEntry]:
        """The run's next turn sees it, unless the run has ended by then; nothing is overwritten.

        Of a run that has gone on as a new one, the last link gets it.
        """
        event = request.resolved_event
        wanted = read_body(InboxRequest, read_json(event, self._body_limit))
        request.context["run_id"] = run_id
        entry = await self._client().put_inbox(
            run_id, wanted.key, wanted.value, entry_id=wanted.entry_id, actor=actor(event)
        )
        headers = {"Location": f"{prefix(event)}/v1/runs/{entry.run_id}"}
        return reply(entry_shape(entry), status=202, headers=headers)

    async def entries(self, request: Request, run_id: RunId) -> Response[Inbox]:
        """With the numbers of the events that recorded them; null while the run has not looked."""
        request.context["run_id"] = run_id
        found = await self._client().list_inbox(run_id)
        body = {"entries": [entry_shape(entry) for entry in found]}
        return reply(checked_size(body, "read it with the Python client"))

    async def resume(self, request: Request, run_id: RunId) -> Response[ResumeAccepted]:
        """Steps and workflows that wait for input look again, whether there is any or not."""
        event = request.resolved_event
        request.context["run_id"] = run_id
        await self._client().resume(run_id, actor=actor(event))
        headers = {"Location": f"{prefix(event)}/v1/runs/{run_id}"}
        return reply({"run_id": run_id, "requested": True}, status=202, headers=headers)
