"""The same routes on Powertools' local resolver, as an ASGI server calls it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aws_lambda_powertools.event_handler import HttpResolverLocal

from stepwell.api import add_routes
from stepwell.testing import Environment
from tests.integration.api.calls import Api


@pytest.fixture
def app(api: Api) -> HttpResolverLocal:
    app = HttpResolverLocal(enable_validation=True, debug=False)
    add_routes(app, lambda token=None: api.client)
    return app


def call(
    env: Environment,
    app: HttpResolverLocal,
    method: str,
    path: str,
    body: bytes = b"",
    **headers: str,
) -> tuple[int, dict[str, str], str]:
    path, _, query = path.partition("?")
    scope: dict[str, Any] = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "headers": [(n.replace("_", "-").encode(), v.encode()) for n, v in headers.items()],
    }
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    env.wait_for(app(scope, receive, send))
    answered = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], answered, sent[1]["body"].decode()


def test_a_run_is_started_answered_and_read(api: Api, app: HttpResolverLocal) -> None:
    env, kind = api.env, "application/json"
    body = b'{"input": {"order": "a"}}'
    status, headers, text = call(
        env, app, "POST", "/v1/workflows/refund/runs", body, content_type=kind
    )
    assert status == 202
    env.run_until_idle()
    page = call(env, app, "GET", f"/hooks/{api.tokens[0]}", accept="text/html")
    assert page[0] == 200
    assert "<form" in page[2]
    answered = call(
        env, app, "POST", f"/hooks/{api.tokens[0]}", b'{"approved": true}', content_type=kind
    )
    assert answered[0] == 200
    env.run_until_idle()
    assert headers["location"] == f"/v1/runs/{json.loads(text)['run_id']}"
    status, _, text = call(env, app, "GET", headers["location"])
    assert json.loads(text)["result"] == "refunded"


def test_problems_are_the_same(api: Api, app: HttpResolverLocal) -> None:
    wrong = [
        ("GET", "/v1/runs?limit=0", 422),
        ("GET", "/v1/runs?cursor=x", 400),
        ("GET", "/v1/runs/x", 404),
        ("PATCH", "/v1/runs/x", 405),
        ("GET", "/x", 404),
        ("POST", "/v1/workflows/x/runs", 404),
    ]
    for method, path, expected in wrong:
        status, headers, text = call(api.env, app, method, path)
        assert status == json.loads(text)["status"] == expected
        assert headers["content-type"] == "application/problem+json"
