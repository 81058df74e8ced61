"""Inboxes of runs over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from stepwell import Suspend, current, workflow
from tests.integration.api.calls import Api


@pytest.fixture
def run_id(api: Api) -> str:
    @workflow
    def waits_for_input() -> Any:
        if "approved" not in current.run.inbox:
            raise Suspend("sign-off")
        return current.run.inbox["approved"]

    run = api.env.start(waits_for_input)
    api.env.run_until_idle()
    return run.id


def test_an_entry_is_accepted_and_wakes_the_run(api: Api, run_id: str) -> None:
    shown = api.get(f"/v1/runs/{run_id}").json
    assert [wait["reason"] for wait in shown["waiting"]] == ["sign-off"]
    answer = api.post(f"/v1/runs/{run_id}/inbox", {"key": "approved", "value": {"by": "Ada"}})
    assert answer.status == 202
    assert answer.headers["location"] == f"/v1/runs/{run_id}"
    assert (answer.json["key"], answer.json["value"]) == ("approved", {"by": "Ada"})
    assert answer.json["event"] is None
    api.env.run_until_idle()
    assert api.get(f"/v1/runs/{run_id}").json["result"] == {"by": "Ada"}
    [entry] = api.get(f"/v1/runs/{run_id}/inbox").json["entries"]
    assert entry == {**answer.json, "event": 3}


def test_an_entry_id_makes_two_sends_one(api: Api, run_id: str) -> None:
    body = {"key": "a", "value": 1, "entry_id": "one"}
    assert api.post(f"/v1/runs/{run_id}/inbox", body).status == 202
    assert api.post(f"/v1/runs/{run_id}/inbox", body).status == 202
    refused = api.post(f"/v1/runs/{run_id}/inbox", {**body, "value": 2})
    assert (refused.status, refused.code) == (409, "entry_conflict")
    assert len(api.get(f"/v1/runs/{run_id}/inbox").json["entries"]) == 1


def test_a_run_that_has_ended_takes_no_input(api: Api, run_id: str) -> None:
    api.post(f"/v1/runs/{run_id}/inbox", {"key": "approved"})
    api.env.run_until_idle()
    refused = api.post(f"/v1/runs/{run_id}/inbox", {"key": "approved"})
    assert (refused.status, refused.code) == (409, "run_ended")
    assert refused.json["run_status"] == "COMPLETED"
    assert api.post(f"/v1/runs/{run_id}/resume").status == 409


def test_a_resume_has_the_run_look_again(api: Api, run_id: str) -> None:
    answer = api.post(f"/v1/runs/{run_id}/resume")
    assert (answer.status, answer.json) == (202, {"run_id": run_id, "requested": True})
    api.env.run_until_idle()
    types = [each["type"] for each in api.get(f"/v1/runs/{run_id}/events").json["events"]]
    assert types == ["RunStarted", "RunSuspended", "LookRequested", "RunSuspended"]


@pytest.mark.parametrize("method", ["get", "post"])
def test_a_run_that_is_not_there_has_no_inbox(api: Api, method: str) -> None:
    answer = (
        api.get("/v1/runs/nobody/inbox")
        if method == "get"
        else api.post("/v1/runs/nobody/inbox", {"key": "a"})
    )
    assert (answer.status, answer.code) == (404, "run_not_found")


@pytest.mark.parametrize("body", [{}, {"key": ""}, {"key": 3}, {"key": "a", "more": 1}, []])
def test_an_entry_of_the_wrong_form_is_refused(api: Api, run_id: str, body: Any) -> None:
    answer = api.post(f"/v1/runs/{run_id}/inbox", body)
    assert (answer.status, answer.code) == (422, "invalid_body")
    assert api.get(f"/v1/runs/{run_id}/inbox").json["entries"] == []
