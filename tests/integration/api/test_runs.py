"""Runs over HTTP: start, look at, list, cancel."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from pydantic import BaseModel

from stepwell import RetryPolicy, current, shapes, step, workflow
from stepwell.api import http_api
from stepwell.client import Client
from stepwell.core.payload import Sizes
from stepwell.core.records import RunHeader
from stepwell.engine.ports import TransientError
from stepwell.testing import Environment
from tests.integration.api.calls import Api, event


def test_a_start_is_accepted_and_says_where_the_run_is(api: Api) -> None:
    answer = api.post("/v1/workflows/refund/runs", {"input": {"order": "a"}, "tags": ["eu"]})
    assert answer.status == 202
    run = answer.json
    assert answer.headers["location"] == f"/v1/runs/{run['run_id']}"
    assert "idempotent-replayed" not in answer.headers
    assert run["status"] == "PENDING"
    assert run["tags"] == ["eu"]
    assert run["input"] == {"order": "a", "amount": 3}
    api.env.run_until_idle()
    later = api.get(answer.headers["location"])
    assert later.status == 200
    assert later.json["status"] == "SUSPENDED"
    assert [wait["name"] for wait in later.json["waiting"]] == ["approval"]


def test_the_location_keeps_the_name_of_a_stage(api: Api) -> None:
    request = event(
        "POST",
        "/v1/workflows/refund/runs",
        '{"input": {"order": "a"}}',
        headers={"content-type": "application/json"},
        stage="live",
    )
    assert api.send(request).headers["location"].startswith("/live/v1/runs/")


def test_the_same_key_and_input_give_the_same_run_and_say_so(api: Api) -> None:
    key = {"Idempotency-Key": "order 7, second try"}
    body = {"input": {"order": "a"}}
    first = api.post("/v1/workflows/refund/runs", body, headers=key)
    # The default written out is the same input.
    again = api.post(
        "/v1/workflows/refund/runs", {"input": {"order": "a", "amount": 3}}, headers=key
    )
    assert first.json["run_id"] == again.json["run_id"]
    assert "idempotent-replayed" not in first.headers
    assert again.headers["idempotent-replayed"] == "true"
    assert again.status == 202
    assert len(api.get("/v1/runs").json["runs"]) == 1


def test_the_same_key_with_another_input_is_refused(api: Api) -> None:
    key = {"Idempotency-Key": "k"}
    first = api.post("/v1/workflows/refund/runs", {"input": {"order": "a"}}, headers=key)
    other = api.post("/v1/workflows/refund/runs", {"input": {"order": "b"}}, headers=key)
    assert (other.status, other.code) == (422, "idempotency_conflict")
    assert other.json["run_id"] == first.json["run_id"]


def test_a_workflow_that_is_not_published_is_not_found(api: Api) -> None:
    answer = api.post("/v1/workflows/refnud/runs", {"input": {"order": "a"}})
    assert (answer.status, answer.code) == (404, "workflow_not_found")


def test_an_input_that_does_not_fit_is_refused_with_its_places(api: Api) -> None:
    answer = api.post("/v1/workflows/refund/runs", {"input": {"order": 1, "amount": "x"}})
    assert (answer.status, answer.code) == (422, "input_rejected")
    assert {each["pointer"] for each in answer.json["errors"]} == {"/order", "/amount"}
    assert api.get("/v1/runs").json["runs"] == []


def test_while_nothing_is_published_any_start_is_accepted(env: Environment) -> None:
    api = Api(env)
    answer = api.post("/v1/workflows/slow/runs", {"input": {"hours": 1}})
    assert answer.status == 202
    api.env.advance("1h")
    assert api.get(answer.headers["location"]).json["result"] == 1


def test_a_start_needs_no_body_where_the_workflow_needs_no_input(env: Environment) -> None:
    @workflow
    async def idle() -> None:
        pass

    api = Api(env)
    env.wait_for(api.client.publish([idle.definition]))
    assert api.send(event("POST", "/v1/workflows/idle/runs")).status == 202


def test_a_run_is_shown_as_the_command_line_shows_it(api: Api) -> None:
    run, _ = api.waiting()
    header = api.env.wait_for(api.client.get(run))
    assert api.get(f"/v1/runs/{run}").json == shapes.run_shape(header)
    history = api.env.wait_for(api.client.history(run))
    events = api.get(f"/v1/runs/{run}/events").json
    assert events == {
        "run_id": run,
        "events": [shapes.event_shape(each) for each in history],
        "next": None,
    }


def test_a_failed_run_shows_its_error(env: Environment) -> None:
    @step(retry=RetryPolicy(max_attempts=1))
    async def broken() -> None:
        raise ValueError("no such card")

    @workflow
    async def failing() -> None:
        await broken()

    api = Api(env)
    run = env.start(failing)
    env.run_until_idle()
    shown = api.get(f"/v1/runs/{run.id}").json
    assert shown["status"] == "FAILED"
    assert "no such card" in json.dumps(shown["error"])


def test_a_run_can_be_looked_at_without_its_values(api: Api) -> None:
    run, _ = api.waiting()
    assert api.get(f"/v1/runs/{run}", query="values=false").json["input"] is None
    [first, *_] = api.get(f"/v1/runs/{run}/events", query="values=false").json["events"]
    assert first["input"] is None


def test_values_that_do_not_fit_a_response_are_refused_with_a_way_out() -> None:
    with Environment(sizes=Sizes(hard_limit=8_000_000)) as env:
        api = Api(env)
        run = env.start(api.refund, '"' * 3_000_000)
        answer = api.get(f"/v1/runs/{run.id}")
        assert (answer.status, answer.code) == (413, "response_too_large")
        assert "values=false" in answer.json["detail"]
        assert api.get(f"/v1/runs/{run.id}", query="values=false").status == 200
        env.run_until_idle()
        assert api.get(f"/v1/runs/{run.id}/events").status == 413
        assert api.get(f"/v1/runs/{run.id}/events", query="after=1").status == 200


def test_an_unknown_run_is_not_found(api: Api) -> None:
    for path in ("/v1/runs/nope", "/v1/runs/nope/events"):
        answer = api.get(path)
        assert (answer.status, answer.code) == (404, "run_not_found")
        assert answer.json["instance"] == path
    assert api.post("/v1/runs/nope/cancel").code == "run_not_found"


def test_a_history_is_read_page_by_page(api: Api) -> None:
    run, token = api.waiting()
    api.env.resume_hook(token, {"approved": True})
    whole = api.get(f"/v1/runs/{run}/events").json["events"]
    read, after = [], 0
    while after is not None:
        page = api.get(f"/v1/runs/{run}/events", query=f"after={after}&limit=1").json
        read += page["events"]
        after = page["next"]
    assert read == whole
    assert [each["number"] for each in read] == [1, 2, 3, 4]
    beyond = api.get(f"/v1/runs/{run}/events", query="after=99").json
    assert (beyond["events"], beyond["next"]) == ([], None)


def test_runs_are_listed_page_by_page_and_filtered(api: Api) -> None:
    run, token = api.waiting()
    api.env.resume_hook(token, {"approved": True})
    others = [api.env.start(api.slow, hours).id for hours in (1, 2, 3)]
    listed, query = [], "limit=2"
    while query:
        page = api.get("/v1/runs", query=query).json
        listed += [each["run_id"] for each in page["runs"]]
        query = f"limit=2&cursor={page['cursor']}" if page["cursor"] else ""
    assert sorted(listed) == sorted([run, *others])

    def found(query: str) -> set[str]:
        return {each["run_id"] for each in api.get("/v1/runs", query=query).json["runs"]}

    assert found("workflow=refund") == {run}
    assert found("status=COMPLETED") == {run}
    assert found("workflow=slow&status=COMPLETED") == set()
    assert found("attention=BLOCKED") == set()


@pytest.mark.parametrize("cursor", ["x", "%00", "e30", "W10", "'; drop"])
@pytest.mark.parametrize("path", ["/v1/runs", "/v1/hooks", "/v1/workflows"])
def test_a_bad_cursor_is_refused_not_taken_for_the_start(api: Api, path: str, cursor: str) -> None:
    answer = api.get(path, query=f"cursor={cursor}")
    assert (answer.status, answer.code) == (400, "bad_cursor")


def test_the_cursor_of_another_list_is_refused(api: Api) -> None:
    for hours in (1, 2):
        api.env.start(api.slow, hours)
    cursor = api.get("/v1/runs", query="limit=1").json["cursor"]
    assert api.get("/v1/hooks", query=f"cursor={cursor}").code == "bad_cursor"


def test_a_cancel_is_accepted_and_names_who_asked(api: Api) -> None:
    run, _ = api.waiting()
    answer = api.post(
        f"/v1/runs/{run}/cancel",
        {"reason": "ordered twice"},
        authorizer={"iam": {"userArn": "arn:aws:iam::123456789012:user/ann"}},
    )
    assert answer.status == 202
    assert answer.headers["location"] == f"/v1/runs/{run}"
    assert answer.json == {"run_id": run, "requested": True, "status": "SUSPENDED"}
    api.env.run_until_idle()
    assert api.get(f"/v1/runs/{run}").json["status"] == "CANCELLED"
    [asked] = [
        each
        for each in api.get(f"/v1/runs/{run}/events").json["events"]
        if each["type"] == "CancelRequested"
    ]
    assert asked["actor"] == "arn:aws:iam::123456789012:user/ann"
    assert asked["reason"] == "ordered twice"


def test_the_subject_of_a_token_is_the_actor_too(api: Api) -> None:
    run, _ = api.waiting()
    claims = {"jwt": {"claims": {"sub": "user-7"}, "scopes": None}}
    assert api.post(f"/v1/runs/{run}/cancel", authorizer=claims).status == 202
    api.env.run_until_idle()
    assert '"actor":"user-7"' in api.get(f"/v1/runs/{run}/events").text


def test_a_run_that_has_ended_cannot_be_cancelled(api: Api) -> None:
    run, token = api.waiting()
    api.env.resume_hook(token, {"approved": True})
    answer = api.post(f"/v1/runs/{run}/cancel")
    assert (answer.status, answer.code) == (409, "run_ended")
    assert answer.json["run_status"] == "COMPLETED"
    assert answer.json["run_id"] == run


def test_workflows_are_listed_and_shown_with_their_schemas(api: Api) -> None:
    listed = api.get("/v1/workflows").json
    assert [each["name"] for each in listed["workflows"]] == ["refund", "slow"]
    assert listed["cursor"] is None
    first = api.get("/v1/workflows", query="limit=1").json
    second = api.get("/v1/workflows", query=f"limit=1&cursor={first['cursor']}").json
    assert [each["name"] for each in second["workflows"]] == ["slow"]
    shown = api.get("/v1/workflows/refund").json
    assert shown["description"] == "Give money back."
    assert shown["input_schema"]["required"] == ["order"]
    assert shown["result_schema"] == {"type": "string"}
    assert api.get("/v1/workflows/nope").code == "workflow_not_found"


def test_health_asks_nothing_of_what_is_behind(env: Environment) -> None:
    api = Api(env)
    api.client = None  # type: ignore[assignment] - whoever touches it fails
    answer = api.get("/healthz")
    assert (answer.status, answer.json) == (200, {"status": "ok"})


def test_a_passing_failure_says_when_to_come_again(api: Api) -> None:
    def failing(token: str | None = None) -> None:
        raise TransientError("AWS: throttled")

    api.app = http_api(failing)  # type: ignore[arg-type] - it gives no client
    answer = api.get("/v1/runs")
    assert (answer.status, answer.code) == (503, "unavailable")
    assert int(answer.headers["retry-after"]) > 0
    assert "throttled" not in answer.text


def test_an_unexpected_error_tells_nothing_of_the_inside(api: Api) -> None:
    api.client = None  # type: ignore[assignment] - whoever touches it fails
    answer = api.get("/v1/runs/x")
    assert (answer.status, answer.code) == (500, "internal_error")
    assert "NoneType" not in answer.text


def test_a_response_that_does_not_fit_its_model_is_an_error_of_ours(api: Api) -> None:
    run, _ = api.waiting()
    header = api.env.wait_for(api.client.get(run))

    class Odd(Client):
        def __init__(self) -> None:
            pass

        async def get(self, run_id: str) -> RunHeader:
            return replace(header, version=7)  # type: ignore[arg-type] - that is the point

    api.client = Odd()
    answer = api.get(f"/v1/runs/{run}")
    assert (answer.status, answer.code) == (500, "internal_error")


# Deleting, and picking


def test_an_ended_run_is_deleted(api: Api) -> None:
    run_id, token = api.waiting()
    going = api.send(event("DELETE", f"/v1/runs/{run_id}"))
    assert (going.status, going.code) == (409, "run_not_ended")
    api.env.resume_hook(token, {"approved": True})
    answer = api.send(event("DELETE", f"/v1/runs/{run_id}"))
    assert (answer.status, answer.json) == (202, {"run_id": run_id, "requested": True})
    api.env.run_until_idle()
    assert api.get(f"/v1/runs/{run_id}").code == "run_not_found"
    assert api.send(event("DELETE", f"/v1/runs/{run_id}")).status == 202
    assert api.send(event("DELETE", "/v1/runs/nobody")).code == "run_not_found"


def test_runs_are_picked_by_tags_and_attributes(api: Api) -> None:
    api.publish()
    body = {"input": {"hours": 1}, "tags": ["eu", "new"]}
    wanted = api.post("/v1/workflows/slow/runs", body).json["run_id"]
    api.post("/v1/workflows/slow/runs", {"input": {"hours": 1}, "tags": ["eu"]})
    found = api.get("/v1/runs", query="tag=eu&tag=new").json["runs"]
    assert [each["run_id"] for each in found] == [wanted]
    assert api.get("/v1/runs", query="attribute=zone%3Deu").json["runs"] == []
    assert api.get("/v1/runs", query="attribute=zone").code == "invalid_parameter"


def test_a_start_gives_the_context(api: Api) -> None:
    class Caller(BaseModel):
        tenant: str = "none"

    @workflow(context=Caller)
    async def contextual() -> str:
        tenant: str = current.context.tenant
        return tenant

    api.env.wait_for(api.client.publish([contextual.definition]))
    answer = api.post("/v1/workflows/contextual/runs", {"context": {"tenant": "acme"}})
    assert answer.status == 202, answer.text
    assert answer.json["context"] == {"tenant": "acme"}
    api.env.run_until_idle()
    assert api.get(answer.headers["location"]).json["result"] == "acme"
    large = api.post("/v1/workflows/contextual/runs", {"context": {"tenant": "x" * 20_000}})
    assert (large.status, large.code) == (413, "value_too_large")
