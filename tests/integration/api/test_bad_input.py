"""Requests that are wrong, at every door: each a clear problem, and nothing changed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stepwell.testing import Environment
from tests.integration.api.calls import FORM, Api, event

START = "/v1/workflows/refund/runs"

BODIES: list[tuple[str | bytes, int, str]] = [
    ("{", 400, "bad_body"),
    ("order=a", 400, "bad_body"),
    ('\ufeff{"approved": true}', 400, "bad_body"),
    ('{"input": {"order": NaN}}', 400, "bad_body"),
    ('{"input": {"order": -Infinity}}', 400, "bad_body"),
    ('{"input": {"order": 1e999}}', 400, "bad_body"),
    ('{"input": {"order": "a"}, "input": {"order": "b"}}', 400, "bad_body"),
    ('{"input": {"order": "a", "order": "b"}}', 400, "bad_body"),
    ("[" * 500 + "]" * 500, 400, "bad_body"),
    ("[" * 200_000, 400, "bad_body"),
    ("1" * 5_000, 400, "bad_body"),
    (b"\xff\xfe{}", 400, "bad_body"),
    (b'{"input": "\xe9"}', 400, "bad_body"),
]


@pytest.mark.parametrize(("body", "status", "code"), BODIES)
def test_a_body_that_cannot_be_read_starts_nothing(
    api: Api, body: str | bytes, status: int, code: str
) -> None:
    answer = api.post(START, body)
    assert (answer.status, answer.code) == (status, code)
    assert api.get("/v1/runs").json["runs"] == []


@pytest.mark.parametrize(("body", "status", "code"), BODIES)
def test_a_body_that_cannot_be_read_answers_nothing(
    api: Api, body: str | bytes, status: int, code: str
) -> None:
    _, token = api.waiting()
    answer = api.post(f"/hooks/{token}", body)
    assert (answer.status, answer.code) == (status, code)
    assert api.get(f"/hooks/{token}").json["status"] == "PENDING"


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ([], ""),
        ("x", ""),
        (None, ""),
        ({"order": "a"}, "/order"),
        ({"input": []}, "/input"),
        ({"input": None}, "/input"),
        ({"input": {}, "tags": "eu"}, "/tags"),
        ({"input": {}, "tags": [1]}, "/tags/0"),
        ({"input": {}, "tags": ["x"] * 51}, "/tags"),
        ({"input": {}, "tags": ["x" * 1_001]}, "/tags/0"),
    ],
)
def test_a_start_of_the_wrong_form_is_refused_with_its_place(
    api: Api, body: Any, pointer: str
) -> None:
    answer = api.post(START, json.dumps(body))
    assert (answer.status, answer.code) == (422, "invalid_body")
    assert [each["pointer"] for each in answer.json["errors"]] == [pointer] or not pointer


def test_text_that_is_no_unicode_is_refused(api: Api) -> None:
    _, token = api.waiting()
    assert api.post(START, '{"input": {"order": "\\ud800"}}').code == "invalid_body"
    assert api.post(START, '{"input": {"order": "a"}, "tags": ["\\ud800"]}').status == 422
    assert api.post(f"/hooks/{token}", '{"approved": true, "note": "\\udfff"}').status == 422
    run = api.post(START, {"input": {"order": "a"}}).json["run_id"]
    cancel = api.post(f"/v1/runs/{run}/cancel", '{"reason": "\\ud800"}')
    assert (cancel.status, cancel.code) == (422, "invalid_body")


def test_bodies_in_base64_are_read(api: Api) -> None:
    answer = api.post(START, '{"input": {"order": "é"}}'.encode())
    assert answer.status == 202
    assert answer.json["input"]["order"] == "é"


def test_base64_that_is_none_is_refused(api: Api) -> None:
    request = event("POST", START, b"{}", headers={"content-type": "application/json"})
    assert api.send({**request, "body": "!!!"}).code == "bad_body"


def test_a_body_may_be_as_large_as_the_limit_and_no_larger(env: Environment) -> None:
    api = Api(env, body_limit=1_000)
    api.publish()
    _, token = api.waiting()
    fits = json.dumps({"input": {"order": "x" * 976}})
    assert len(fits) == 1_000
    for body in (fits, fits.encode()):
        assert api.post(START, body).status == 202
    for larger in (fits + " ", f"{fits} ".encode(), fits[:-10] + "é" * 10, "x" * 100_000):
        for path in (START, f"/hooks/{token}"):
            answer = api.post(path, larger)
            assert (answer.status, answer.code) == (413, "body_too_large")
            assert answer.json["limit"] == 1_000
            assert answer.json["size"] > 1_000
    form = api.post_form(token, "note=" + "x" * 1_000)
    assert (form.status, form.code) == (413, "body_too_large")


@pytest.mark.parametrize("kind", ["text/plain", FORM, "application/jsonx", ""])
@pytest.mark.parametrize("path", [START, "/v1/runs/x/cancel"])
def test_bodies_of_other_kinds_are_refused(api: Api, path: str, kind: str) -> None:
    answer = api.post(path, '{"input": {"order": "a"}}', headers={"content-type": kind})
    assert (answer.status, answer.code) == (415, "unsupported_media_type")
    assert answer.headers["accept"] == "application/json"


def test_the_kind_of_a_body_may_have_parameters_and_capitals(api: Api) -> None:
    body = '{"input": {"order": "a"}}'
    for kind in ("Application/JSON; charset=UTF-8", 'application/json;charset="utf-8"'):
        assert api.post(START, body, headers={"content-type": kind}).status == 202
    latin = api.post(START, body, headers={"content-type": "application/json; charset=latin-1"})
    assert latin.code == "unsupported_media_type"


@pytest.mark.parametrize(
    ("path", "query", "parameter"),
    [
        ("/v1/runs", "limit=0", "limit"),
        ("/v1/runs", "limit=201", "limit"),
        ("/v1/runs", "limit=many", "limit"),
        ("/v1/runs", "limit=1&limit=2", "limit"),
        ("/v1/runs", "status=done", "status"),
        ("/v1/runs", "attention=LOST", "attention"),
        ("/v1/runs", "workfolw=refund", "workfolw"),
        ("/v1/hooks", "limit=-1", "limit"),
        ("/v1/hooks", "tokens=true", "tokens"),
        ("/v1/workflows", "limit=1.5", "limit"),
        ("/v1/runs/x/events", "after=-1", "after"),
        ("/v1/runs/x/events", "after=x", "after"),
        ("/v1/runs/x", "values=perhaps", "values"),
    ],
)
def test_a_wrong_parameter_is_refused_by_name(
    api: Api, path: str, query: str, parameter: str
) -> None:
    answer = api.get(path, query=query)
    assert (answer.status, answer.code) == (422, "invalid_parameter")
    assert [each["parameter"] for each in answer.json["errors"]] == [parameter]


@pytest.mark.parametrize("key", ["", "x" * 257])
def test_a_wrong_idempotency_key_is_refused(api: Api, key: str) -> None:
    answer = api.post(START, {"input": {"order": "a"}}, headers={"idempotency-key": key})
    assert (answer.status, answer.code) == (422, "invalid_parameter")
    assert api.get("/v1/runs").json["runs"] == []


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/v1",
        "/v1/nope",
        "/v1/runs/",
        "/v1/runs/a/b/c",
        "/hooks",
        "/hooks/",
        "/hooks/a/b",
        "//",
    ],
)
def test_an_unknown_address_is_not_found(api: Api, path: str) -> None:
    for method in ("GET", "POST", "TRACE"):
        answer = api.send(event(method, path))
        assert (answer.status, answer.code) == (404, "not_found")
        assert "instance" not in answer.json


def test_names_that_nothing_can_have_are_not_found(api: Api) -> None:
    assert api.get(f"/v1/runs/{'x' * 3_000}").code == "not_found"
    assert api.get(f"/v1/workflows/{'x' * 3_000}").code == "not_found"
    for name in ("a#b", "..", "W#x", "é", "a b", "%2e%2e"):
        assert api.get(f"/v1/runs/{name}").status == 404
        assert api.get(f"/v1/workflows/{name}").status == 404
        assert api.post(f"/v1/workflows/{name}/runs", {"input": {}}).status == 404


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", "/v1/runs", "GET"),
        ("PUT", "/v1/runs/x", "DELETE, GET"),
        ("GET", "/v1/runs/x/cancel", "POST"),
        ("GET", START, "POST"),
        ("DELETE", "/hooks/x", "GET, HEAD, POST"),
        ("OPTIONS", "/hooks/x", "GET, HEAD, POST"),
        ("POST", "/healthz", "GET"),
        ("PATCH", "/openapi.json", "GET"),
    ],
)
def test_another_method_is_refused_with_those_that_are_taken(
    api: Api, method: str, path: str, allowed: str
) -> None:
    answer = api.send(event(method, path))
    assert (answer.status, answer.code) == (405, "method_not_allowed")
    assert answer.headers["allow"] == allowed


def test_many_and_large_flaws_are_not_all_told(env: Environment) -> None:
    api = Api(env)
    api.publish()
    body = {"input": {"order": 1, **{f"unknown{n}": "x" * 100 for n in range(5_000)}}}
    answer = api.post(START, body)
    assert (answer.status, answer.code) == (422, "input_rejected")
    assert len(answer.text) < 50_000
