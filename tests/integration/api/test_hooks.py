"""Hooks over HTTP: the operators' list, and the public address behind a token."""

from __future__ import annotations

import pytest

from stepwell import hook, workflow
from stepwell.testing import Environment
from tests.integration.api.calls import FORM, PAGE, Api, event


def row_of(api: Api, token: str) -> object:
    return api.env.wait_for(api.client.get_hook(token))


def test_open_hooks_are_listed_without_their_tokens(api: Api) -> None:
    run, token = api.waiting()
    other, _ = api.waiting()
    listed = api.get("/v1/hooks")
    assert {each["run_id"] for each in listed.json["hooks"]} == {run, other}
    assert token not in listed.text
    assert all("token" not in each for each in listed.json["hooks"])
    [one] = api.get("/v1/hooks", query=f"run_id={run}").json["hooks"]
    assert one["hook_id"] == "approval:1"
    assert one["schema"]["title"] == "Decision"
    first = api.get("/v1/hooks", query="limit=1").json
    second = api.get("/v1/hooks", query=f"limit=1&cursor={first['cursor']}").json
    assert first["hooks"][0]["run_id"] != second["hooks"][0]["run_id"]


def test_looking_decides_nothing(api: Api) -> None:
    _, token = api.waiting()
    before = row_of(api, token)
    for method in ("GET", "HEAD", "OPTIONS", "PUT", "DELETE", "PATCH"):
        for accept in (PAGE, "application/json"):
            api.send(
                event(
                    method,
                    f"/hooks/{token}",
                    '{"approved": true}',
                    query="approved=true",
                    headers={"accept": accept, "content-type": "application/json"},
                )
            )
    assert row_of(api, token) == before
    assert not api.env.take_turn()


def test_looking_at_an_overdue_hook_decides_nothing_either(api: Api) -> None:
    _, token = api.waiting()
    api.env.clock.move_to(api.env.clock.now() + 2 * 86_400_000)
    before = row_of(api, token)
    assert api.get(f"/hooks/{token}").json["status"] == "PENDING"
    assert row_of(api, token) == before


def test_a_hook_is_shown_as_json_without_its_run(api: Api) -> None:
    run, token = api.waiting()
    answer = api.get(f"/hooks/{token}", headers={"accept": "application/json"})
    assert answer.status == 200
    assert (answer.json["name"], answer.json["status"]) == ("approval", "PENDING")
    assert answer.json["schema"]["required"] == ["approved"]
    assert run not in answer.text


def test_head_answers_as_get_does_without_a_body(api: Api) -> None:
    _, token = api.waiting()
    head = api.send(event("HEAD", f"/hooks/{token}"))
    assert (head.status, head.text) == (200, "")
    gone = api.send(event("HEAD", "/hooks/nope"))
    assert (gone.status, gone.text) == (404, "")


def test_every_answer_of_a_link_is_kept_from_others(api: Api) -> None:
    _, token = api.waiting()
    answers = [
        api.get(f"/hooks/{token}"),
        api.get(f"/hooks/{token}", headers={"accept": PAGE}),
        api.get("/hooks/nope", headers={"accept": PAGE}),
        api.get("/hooks/nope"),
        api.post(f"/hooks/{token}", {}),
        api.post(f"/hooks/{token}", {"approved": True}),
    ]
    for answer in answers:
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["x-robots-tag"] == "noindex, nofollow"
        assert answer.headers["vary"] == "Accept"
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src" not in policy
        assert "unsafe" not in policy
        assert "<script" not in answer.text
        assert token not in answer.text


def test_the_first_answer_is_taken_and_the_same_again_gets_the_same_body(api: Api) -> None:
    run, token = api.waiting()
    first = api.post(f"/hooks/{token}", {"approved": True, "note": "ok"})
    again = api.post(f"/hooks/{token}", {"note": "ok", "approved": True})
    assert first.status == again.status == 200
    assert first.text == again.text
    assert "idempotent-replayed" not in first.headers
    assert again.headers["idempotent-replayed"] == "true"
    api.env.run_until_idle()
    assert api.get(f"/v1/runs/{run}").json["result"] == "refunded"
    received = [
        each
        for each in api.get(f"/v1/runs/{run}/events").json["events"]
        if each["type"] == "HookReceived"
    ]
    assert len(received) == 1
    assert api.post(f"/hooks/{token}", {"approved": True, "note": "ok"}).text == first.text


def test_another_answer_is_refused(api: Api) -> None:
    _, token = api.waiting()
    api.post(f"/hooks/{token}", {"approved": True})
    answer = api.post(f"/hooks/{token}", {"approved": False})
    assert (answer.status, answer.code) == (409, "hook_already_decided")


def test_an_answer_after_the_deadline_is_too_late(api: Api) -> None:
    _, token = api.waiting()
    api.env.clock.move_to(api.env.clock.now() + 2 * 86_400_000)
    answer = api.post(f"/hooks/{token}", {"approved": True})
    assert (answer.status, answer.code) == (410, "hook_expired")
    assert api.get(f"/hooks/{token}").json["status"] == "EXPIRED"


def test_an_answer_to_a_cancelled_run_is_too_late(api: Api) -> None:
    run, token = api.waiting()
    api.post(f"/v1/runs/{run}/cancel")
    api.env.run_until_idle()
    assert api.post(f"/hooks/{token}", {"approved": True}).code == "hook_expired"


def test_an_answer_that_does_not_fit_leaves_the_hook_open(api: Api) -> None:
    _, token = api.waiting()
    answer = api.post(f"/hooks/{token}", {"approved": "perhaps", "note": "x" * 21})
    assert (answer.status, answer.code) == (422, "payload_rejected")
    assert {each["pointer"] for each in answer.json["errors"]} == {"/approved", "/note"}
    assert api.get(f"/hooks/{token}").json["status"] == "PENDING"
    assert api.post(f"/hooks/{token}", {"approved": True}).status == 200


def test_unknown_foreign_and_forged_tokens_get_the_same_answer(api: Api) -> None:
    run, token = api.waiting()
    with Environment(seed="other") as elsewhere:
        foreign = Api(elsewhere)
        _, theirs = foreign.waiting()
    bad = [
        "nope",
        "a" * 5_000,
        token[:-1] + ("A" if token[-1] != "A" else "B"),
        token.replace("k1.", "k2.", 1),
        theirs,  # genuine by its key, of a run that is not here
        run,
        "..%2f..",
        "k1.é.x.y",
    ]
    for method in ("GET", "POST"):
        texts = set()
        for each in bad:
            headers = {"content-type": "application/json"}
            answer = api.send(event(method, f"/hooks/{each}", '{"a": 1}', headers=headers))
            assert (answer.status, answer.code) == (404, "hook_not_found")
            texts.add(answer.text)
        assert len(texts) == 1


def test_who_answers_by_a_link_is_not_believed_who_they_are(api: Api) -> None:
    run, token = api.waiting()
    api.post(f"/hooks/{token}", {"approved": True}, headers={"x-actor": "root", "from": "root"})
    api.env.run_until_idle()
    [received] = [
        each
        for each in api.get(f"/v1/runs/{run}/events").json["events"]
        if each["type"] == "HookReceived"
    ]
    assert received["actor"] is None


def test_a_page_shows_a_form_and_its_answer_is_converted_by_the_schema(api: Api) -> None:
    run, token = api.waiting()
    page = api.get(f"/hooks/{token}", headers={"accept": PAGE})
    assert page.status == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert '<form method="post"' in page.text
    assert 'name="approved"' in page.text
    assert "Whether the money goes back." in page.text
    taken = api.post_form(token, "approved=true&note=fine", accept=PAGE)
    assert taken.status == 200
    assert "Your answer was taken" in taken.text
    again = api.post_form(token, "approved=true&note=fine", accept=PAGE)
    assert (again.status, again.headers["idempotent-replayed"]) == (200, "true")
    api.env.run_until_idle()
    assert api.get(f"/v1/runs/{run}").json["result"] == "refunded"
    assert "answered already" in api.get(f"/hooks/{token}", headers={"accept": PAGE}).text
    other = api.post_form(token, "approved=false", accept=PAGE)
    assert (other.status, other.headers["content-type"]) == (409, "text/html; charset=utf-8")


def test_a_form_that_does_not_fit_is_shown_again_as_it_was_filled_in(api: Api) -> None:
    _, token = api.waiting()
    note = "%3Cb%3E+%22quoted%22+and+too+long"
    again = api.post_form(token, f"approved=&note={note}", accept=PAGE)
    assert again.status == 422
    assert 'role="alert"' in again.text
    assert "&lt;b&gt; &quot;quoted&quot;" in again.text
    assert "<b>" not in again.text
    plain = api.post_form(token, "approved=&note=")
    assert (plain.status, plain.code) == (422, "payload_rejected")


def test_fields_that_were_not_asked_for_are_refused(api: Api) -> None:
    _, token = api.waiting()
    answer = api.post_form(token, "approved=true&admin=true")
    assert (answer.status, answer.code) == (422, "payload_rejected")
    assert answer.json["errors"] == [{"pointer": "/admin", "message": "not asked for"}]


def test_a_hook_without_a_schema_takes_any_json_also_by_its_page(env: Environment) -> None:
    tokens: list[str] = []

    @workflow
    async def ask() -> object:
        return [
            await hook("first", on_created=tokens.append),
            await hook("second", on_created=tokens.append),
        ]

    api = Api(env)
    run = env.start(ask)
    env.run_until_idle()
    assert "<textarea" in api.get(f"/hooks/{tokens[0]}", headers={"accept": PAGE}).text
    bad = api.post_form(tokens[0], "payload=%7B%22a%22", accept=PAGE)
    assert bad.status == 400
    assert "{&quot;a&quot;</textarea>" in bad.text
    assert api.post_form(tokens[0], "payload=%7B%22a%22%3A1%7D", accept=PAGE).status == 200
    env.run_until_idle()
    # An array is an answer, too, not a list of answers.
    assert api.post(f"/hooks/{tokens[1]}", [1]).status == 200
    env.run_until_idle()
    assert api.get(f"/v1/runs/{run.id}").json["result"] == [{"a": 1}, [1]]


def test_links_may_carry_what_mail_programs_add(api: Api) -> None:
    _, token = api.waiting()
    assert api.get(f"/hooks/{token}", query="utm_source=mail").status == 200


@pytest.mark.parametrize("kind", ["", "text/plain", "multipart/form-data; boundary=x", FORM + "x"])
def test_answers_of_other_kinds_are_refused(api: Api, kind: str) -> None:
    _, token = api.waiting()
    answer = api.post(f"/hooks/{token}", '{"approved": true}', headers={"content-type": kind})
    assert (answer.status, answer.code) == (415, "unsupported_media_type")
    assert answer.headers["accept"] == f"application/json, {FORM}"
    assert api.get(f"/hooks/{token}").json["status"] == "PENDING"
