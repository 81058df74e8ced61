"""What the API logs: routes, outcomes, runs; never tokens, values or addresses."""

from __future__ import annotations

import io
import json
import logging

import pytest
from aws_lambda_powertools import Logger

from stepwell.api import http_api
from stepwell.engine.ports import TransientError
from tests.integration.api.calls import FORM, PAGE, Api, event

SECRET = "value-that-nobody-may-log"


def test_nothing_secret_is_logged_at_any_level(
    api: Api, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    _, token = api.waiting()
    _, other = api.waiting()
    headers = {"authorization": SECRET, "cookie": SECRET}
    api.post("/v1/workflows/refund/runs", {"input": {"order": SECRET}}, headers=headers)
    api.post("/v1/workflows/refund/runs", {"input": {"order": [SECRET]}}, headers=headers)
    api.get(f"/hooks/{token}", headers={"accept": PAGE})
    api.send(event("HEAD", f"/hooks/{token}"))
    api.post(f"/hooks/{token}", {"approved": SECRET})
    api.post(f"/hooks/{token}", {"approved": True, "note": SECRET[:20]})
    api.post_form(other, f"approved={SECRET}", accept=PAGE)
    for path in (f"/v1/hooks/{token}", f"/hooks/{token}/x", f"/v1/runs/{token}", f"/{token}"):
        api.get(path)
        api.post(path, SECRET)
    api.post(f"/hooks/{token}x", {"approved": SECRET}, headers={"content-type": FORM})
    api.client = None  # type: ignore[assignment] - every request fails from here
    api.post(f"/hooks/{token}", {"approved": SECRET})
    # The test's own code logs through these at DEBUG; the API does not.
    logged = [r for r in caplog.records if r.name != "asyncio"]
    written = "\n".join(f"{r.getMessage()} {vars(r)} {r.exc_text}" for r in logged)
    written += capfd.readouterr().out
    assert "stepwell.api" in {r.name for r in logged}
    for secret in (token, other, token.split(".")[-1], SECRET, SECRET[:20]):
        assert secret not in written


def test_each_request_is_logged_once_with_what_finds_it_again(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="stepwell.api")
    run, token = api.waiting()
    caplog.clear()
    api.get(f"/v1/runs/{run}")
    api.post(f"/hooks/{token}", {"approved": True})
    api.get("/v1/runs/x")
    api.get("/nowhere")
    records = [vars(r) for r in caplog.records if r.name == "stepwell.api"]
    shown = [
        tuple(r.get(name) for name in ("method", "route", "status", "code", "run_id"))
        for r in records
    ]
    assert shown == [
        ("GET", "/v1/runs/{run_id}", 200, None, run),
        ("POST", "/hooks/{token}", 200, None, run),
        ("GET", "/v1/runs/{run_id}", 404, "run_not_found", None),
        ("GET", None, 404, "not_found", None),
    ]
    assert {r["request_id"] for r in records} == {"request-1"}


def test_an_unexpected_error_is_logged_by_type_and_place_without_its_text(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    class Denied(Exception):
        response = {"Error": {"Code": "AccessDeniedException"}}  # noqa: RUF012 - as botocore's

    def failing(token: str | None = None) -> None:
        try:
            raise Denied(SECRET)
        except Denied as error:
            raise ValueError(SECRET) from error

    api.app = http_api(failing)  # type: ignore[arg-type] - it gives no client
    assert api.get("/v1/runs/x").status == 500
    [record] = [vars(r) for r in caplog.records if r.levelno == logging.ERROR]
    assert record["error"] == ["ValueError", "Denied (AccessDeniedException)"]
    assert record["where"][-1].startswith("test_logs.py:")
    assert SECRET not in str(record)


def test_a_passing_failure_is_logged_with_its_reason(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(token: str | None = None) -> None:
        raise TransientError("AWS: throttled")

    api.app = http_api(failing)  # type: ignore[arg-type] - it gives no client
    api.get("/v1/runs/x")
    [record] = [vars(r) for r in caplog.records if r.levelno == logging.WARNING]
    assert record["reason"] == "AWS: throttled"


def test_a_powertools_logger_writes_all_of_it_as_json(api: Api) -> None:
    out = io.StringIO()
    logger = Logger(service="api-test", stream=out)
    package = logging.getLogger("stepwell")
    before = package.handlers, package.level
    package.handlers, package.level = list(logger.handlers), logging.INFO
    try:
        api.get("/v1/runs/x")
    finally:
        package.handlers, package.level = before
    line = json.loads(out.getvalue())
    assert line["route"] == "/v1/runs/{run_id}"
    assert line["code"] == "run_not_found"


def test_a_provider_is_told_the_token_so_that_it_can_look_for_its_key(api: Api) -> None:
    asked: list[str | None] = []
    _, token = api.waiting()
    client = api.client

    def provider(given: str | None = None) -> object:
        asked.append(given)
        return client

    api.app = http_api(provider)  # type: ignore[arg-type] - its client is one
    api.get(f"/hooks/{token}")
    api.post(f"/hooks/{token}", {"approved": True})
    api.get("/v1/runs")
    assert asked == [token, token, None]
