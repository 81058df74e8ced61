"""Published workflows: what can be started."""

from __future__ import annotations

from typing import Annotated

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.openapi.params import Path

from stepwell.api.endpoints import ClientProvider, Cursor, Endpoint, Limit, page_of, reply
from stepwell.api.models import WorkflowDetail, WorkflowPage
from stepwell.shapes import workflow_shape, workflow_summary


class Workflows:
    """The routes of workflows."""

    def __init__(self, client: ClientProvider) -> None:
        self._client = client

    def endpoints(self) -> tuple[Endpoint, ...]:
        """The routes, for `add_routes` to add."""
        return (
            Endpoint(
                method="GET",
                rule="/v1/workflows",
                handle=self.listing,
                name="listWorkflows",
                summary="List published workflows",
                group="workflows",
                model=WorkflowPage,
                problems=("bad_cursor",),
            ),
            Endpoint(
                method="GET",
                rule="/v1/workflows/<workflow>",
                handle=self.show,
                name="getWorkflow",
                summary="Look at a published workflow and its schemas",
                group="workflows",
                model=WorkflowDetail,
                problems=("workflow_not_found",),
            ),
        )

    async def listing(self, limit: Limit = 50, cursor: Cursor = None) -> Response[WorkflowPage]:
        """Workflows are published by their deployment, each in its newest version."""
        client = self._client()
        body = await page_of(
            lambda most: client.list_definitions(limit=most, cursor=cursor),
            workflow_summary,
            "workflows",
            limit,
            cursor,
        )
        return reply(body)

    async def show(
        self, workflow: Annotated[str, Path(max_length=128, description="Name of a workflow.")]
    ) -> Response[WorkflowDetail]:
        """`input_schema` is what the `input` of a start has to fit."""
        return reply(workflow_shape(await self._client().get_definition(workflow)))
