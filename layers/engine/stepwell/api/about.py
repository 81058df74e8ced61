"""What the API says of itself: whether it answers, and its OpenAPI document."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aws_lambda_powertools.event_handler import Response

from stepwell.api.bodies import JSON
from stepwell.api.endpoints import Endpoint, reply
from stepwell.api.models import Health


class About:
    """The routes about the API itself. `document` makes the OpenAPI document."""

    def __init__(self, document: Callable[[], str]) -> None:
        self._document = document

    def endpoints(self) -> tuple[Endpoint, ...]:
        """The routes, for `add_routes` to add."""
        return (
            Endpoint(
                method="GET",
                rule="/healthz",
                handle=self.health,
                name="getHealth",
                summary="See whether the API answers",
                group="api",
                model=Health,
            ),
            Endpoint(
                method="GET",
                rule="/openapi.json",
                handle=self.openapi,
                name="getOpenApi",
                summary="Read this document",
                group="api",
                responses={
                    200: {
                        "description": "The OpenAPI document.",
                        "content": {JSON: {"schema": {"type": "object"}}},
                    }
                },
            ),
        )

    async def health(self) -> Response[Health]:
        """Asks nothing of what is behind the API."""
        return reply({"status": "ok"})

    async def openapi(self) -> Response[Any]:
        """What the API takes and gives, for tools."""
        return reply(self._document())
