"""`stepwell runs inbox` and `runs resume`."""

from __future__ import annotations

from tests.integration.cli.shell import Shell


def test_what_is_put_into_an_inbox_is_listed_and_carries_the_run_on(shell: Shell) -> None:
    run = shell.started("app:waits_for_input")
    assert [wait["reason"] for wait in run["waiting"]] == ["sign-off"]
    run_id = run["run_id"]
    assert "sign-off" in shell("runs", "show", run_id).out
    empty = shell("runs", "inbox", "list", run_id)
    assert (empty.code, empty.out) == (0, "")
    put = ("runs", "inbox", "put", run_id)
    sent = shell(*put, "approved", "--value", '{"by": "Ada"}', "--actor", "eve", "--json").json
    assert (sent["key"], sent["value"], sent["actor"]) == ("approved", {"by": "Ada"}, "eve")
    assert "is in its inbox" in shell(*put, "other", "--entry-id", "one").out
    assert shell(*put, "other", "--entry-id", "one", "--value", "2").code == 1
    assert shell("runs", "resume", run_id, "--json").code == 0
    assert shell("worker", "app", "--until-idle").code == 0
    listed = shell("runs", "inbox", "list", run_id, "--json").json
    assert [entry["key"] for entry in listed["entries"]] == ["approved", "other"]
    assert all(entry["event"] for entry in listed["entries"])
    assert "Ada" in shell("runs", "inbox", "list", run_id).out
    assert shell.run_of(run_id)["result"] == {"by": "Ada"}
    ended = shell(*put, "late")
    assert ended.code == 1
    assert "COMPLETED" in ended.err


def test_a_run_that_is_not_there_has_no_inbox(shell: Shell) -> None:
    assert shell("run", "app:waits_for_input", "--wait", "0s").code == 6
    for command in (
        ("inbox", "list", "nobody"),
        ("inbox", "put", "nobody", "a"),
        ("resume", "nobody"),
    ):
        assert shell("runs", *command).code == 4
