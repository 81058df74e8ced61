"""The API in a test: requests as API Gateway's events, on a deployment in memory."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from pydantic import BaseModel, Field

from stepwell import hook, sleep, workflow
from stepwell.api import BODY_LIMIT, http_api
from stepwell.client import Client
from stepwell.testing import Environment

FORM = "application/x-www-form-urlencoded"
PAGE = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


class Decision(BaseModel):
    """Whether the money goes back."""

    approved: bool
    note: str = Field(default="", max_length=20)


@dataclass(frozen=True)
class Answer:
    """A response, its headers in lower case."""

    status: int
    headers: dict[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def code(self) -> str:
        """Its code, after looking that it is a problem as it should be."""
        assert self.headers["content-type"] == "application/problem+json"
        problem = self.json
        assert problem["status"] == self.status
        assert problem["type"] == f"docs/http-api.md#{problem['code']}"
        assert problem["title"]
        assert problem["detail"]
        assert problem["request_id"] == "request-1"
        code: str = problem["code"]
        return code


def event(
    method: str,
    path: str,
    body: str | bytes | None = None,
    *,
    query: str = "",
    headers: Mapping[str, str] | None = None,
    authorizer: Any = None,
    stage: str = "$default",
) -> dict[str, Any]:
    """An event of an HTTP API, payload format 2.0."""
    asked: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        asked[name] = f"{asked[name]},{value}" if name in asked else value
    raw = isinstance(body, bytes)
    context: dict[str, Any] = {
        "accountId": "123456789012",
        "apiId": "api",
        "http": {"method": method, "path": path, "protocol": "HTTP/1.1", "sourceIp": "192.0.2.1"},
        "requestId": "request-1",
        "routeKey": "ANY /{proxy+}",
        "stage": stage,
    }
    if authorizer is not None:
        context["authorizer"] = authorizer
    return {
        "version": "2.0",
        "routeKey": "ANY /{proxy+}",
        "rawPath": path if stage == "$default" else f"/{stage}{path}",
        "rawQueryString": query,
        "headers": {"host": "api.example.com", **(headers or {})},
        **({"queryStringParameters": asked} if asked else {}),
        "requestContext": context,
        **({} if body is None else {"body": base64.b64encode(body).decode() if raw else body}),
        "isBase64Encoded": raw,
    }


class Api:
    """The API on a deployment in memory, and the workflow `refund` in it."""

    def __init__(self, env: Environment, *, body_limit: int = BODY_LIMIT) -> None:
        self.env = env
        self.client: Client = env.client
        self.tokens: list[str] = []
        self.app = http_api(lambda token=None: self.client, body_limit=body_limit)
        tokens = self.tokens

        @workflow
        async def refund(order: str, amount: int = 3) -> str:
            """Give money back."""
            decision = await hook(
                "approval", timeout="1d", payload_schema=Decision, on_created=tokens.append
            )
            return "refunded" if decision.approved else "kept"

        @workflow
        async def slow(hours: int) -> int:
            await sleep(hours * 3600)
            return hours

        self.refund, self.slow = refund, slow

    def publish(self) -> None:
        """Tell the deployment of both workflows."""
        self.env.wait_for(self.client.publish([self.refund.definition, self.slow.definition]))

    def send(self, request: Mapping[str, Any]) -> Answer:
        """What an event is answered with."""
        response = self.env.wait_for(self.app.resolve_async(request, None))
        assert not response["isBase64Encoded"]
        headers = {name.lower(): value for name, value in response["headers"].items()}
        assert headers["cache-control"] == "no-store"
        assert headers["x-content-type-options"] == "nosniff"
        return Answer(response["statusCode"], headers, response["body"])

    def get(self, path: str, **options: Any) -> Answer:
        """What a GET is answered with."""
        return self.send(event("GET", path, **options))

    def post(self, path: str, body: Any = None, **options: Any) -> Answer:
        """What a POST of JSON is answered with."""
        headers = {"content-type": "application/json", **options.pop("headers", {})}
        text = body if isinstance(body, str | bytes) or body is None else json.dumps(body)
        return self.send(event("POST", path, text, headers=headers, **options))

    def post_form(self, token: str, form: str, *, accept: str = "*/*") -> Answer:
        """What a filled-in form is answered with."""
        return self.post(f"/hooks/{token}", form, headers={"content-type": FORM, "accept": accept})

    def waiting(self) -> tuple[str, str]:
        """A run of `refund` that waits for its answer: its id and the token."""
        run = self.env.start(self.refund, "order-1")
        self.env.run_until_idle()
        return run.id, self.tokens[-1]
