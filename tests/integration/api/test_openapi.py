"""The OpenAPI document: complete, sound, and true to what the routes do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from stepwell.api.problems import KINDS
from stepwell.testing import Environment
from tests.integration.api.calls import Api

ROUTES = {
    ("get", "/healthz"),
    ("get", "/openapi.json"),
    ("get", "/v1/workflows"),
    ("get", "/v1/workflows/{workflow}"),
    ("post", "/v1/workflows/{workflow}/runs"),
    ("get", "/v1/runs"),
    ("get", "/v1/runs/{run_id}"),
    ("delete", "/v1/runs/{run_id}"),
    ("get", "/v1/runs/{run_id}/events"),
    ("post", "/v1/runs/{run_id}/cancel"),
    ("get", "/v1/runs/{run_id}/inbox"),
    ("post", "/v1/runs/{run_id}/inbox"),
    ("post", "/v1/runs/{run_id}/resume"),
    ("get", "/v1/streams/{stream}"),
    ("post", "/v1/streams/{stream}/signals"),
    ("get", "/v1/streams/{stream}/signals"),
    ("get", "/v1/streams/{stream}/steps/{step}/parked"),
    ("post", "/v1/streams/{stream}/steps/{step}/parked/{sequence}"),
    ("get", "/v1/hooks"),
    ("get", "/hooks/{token}"),
    ("head", "/hooks/{token}"),
    ("post", "/hooks/{token}"),
}


@pytest.fixture
def document(env: Environment) -> Any:
    return Api(env).get("/openapi.json").json


def operations(document: Any) -> Iterator[tuple[str, str, Any]]:
    for path, item in document["paths"].items():
        for method, operation in item.items():
            yield method, path, operation


def test_it_names_every_route_once(document: Any) -> None:
    assert document["openapi"].startswith("3.1.")
    assert {(method, path) for method, path, _ in operations(document)} == ROUTES
    names = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(set(names)) == len(names)


def test_every_route_says_how_it_succeeds_and_fails(document: Any) -> None:
    for _, path, operation in operations(document):
        statuses = {int(status) for status in operation["responses"]}
        assert min(statuses) in (200, 202)
        assert {422, 500, 503} <= statuses
        for status, response in operation["responses"].items():
            assert response["description"]
            if int(status) >= 400:
                schema = response["content"]["application/problem+json"]["schema"]
                assert schema == {"$ref": "#/components/schemas/Problem"}
        named = {each["name"] for each in operation.get("parameters", ()) if each["in"] == "path"}
        assert named == {part[1:-1] for part in path.split("/") if part.startswith("{")}
    for path in ("/hooks/{token}", "/v1/workflows/{workflow}/runs", "/v1/runs/{run_id}/cancel"):
        assert document["paths"][path]["post"]["requestBody"]["content"]["application/json"]


def test_only_what_is_public_needs_no_identity(document: Any) -> None:
    for _, path, operation in operations(document):
        public = path.startswith("/hooks/") or path == "/healthz"
        assert ("security" not in operation) is public
    assert set(document["components"]["securitySchemes"]) == {"iam", "jwt"}


def test_every_reference_leads_somewhere_and_every_schema_is_one(document: Any) -> None:
    schemas = document["components"]["schemas"]
    text = json.dumps(document)
    named = {part.partition('"')[0] for part in text.split("#/components/schemas/")[1:]}
    # The few that no other one uses are used by a route, or are left out.
    assert named == set(schemas)
    for name in schemas:
        whole = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
        jsonschema_rs.validator_for(whole, offline=True)


def test_responses_are_what_it_says(api: Api) -> None:
    document = api.get("/openapi.json").json
    run, token = api.waiting()

    def check(path: str, answer: Any, method: str = "get") -> None:
        response = document["paths"][path][method]["responses"][str(answer.status)]
        kind = answer.headers["content-type"]
        schema = {**response["content"][kind]["schema"], "components": document["components"]}
        jsonschema_rs.validator_for(schema, offline=True).validate(answer.json)

    check("/v1/runs", api.get("/v1/runs"))
    check("/v1/runs", api.get("/v1/runs", query="cursor=x"))
    check("/v1/runs/{run_id}", api.get(f"/v1/runs/{run}"))
    check("/v1/runs/{run_id}", api.get("/v1/runs/x"))
    check("/v1/runs/{run_id}/events", api.get(f"/v1/runs/{run}/events"))
    check("/v1/workflows", api.get("/v1/workflows"))
    check("/v1/workflows/{workflow}", api.get("/v1/workflows/refund"))
    check("/v1/hooks", api.get("/v1/hooks"))
    check("/hooks/{token}", api.get(f"/hooks/{token}"))
    check("/hooks/{token}", api.post(f"/hooks/{token}", {}), "post")
    check("/hooks/{token}", api.post(f"/hooks/{token}", {"approved": True}), "post")
    check("/v1/runs/{run_id}/cancel", api.post(f"/v1/runs/{run}/cancel"), "post")
    start = "/v1/workflows/{workflow}/runs"
    check(start, api.post("/v1/workflows/refund/runs", {"input": {"order": "a"}}), "post")
    check(start, api.post("/v1/workflows/refund/runs", {"input": {}}), "post")


def test_every_code_is_explained_where_its_type_leads() -> None:
    page = (Path(__file__).parents[3] / "docs" / "http-api.md").read_text(encoding="utf-8")
    for code in KINDS:
        assert f"\n### {code}\n" in page
