"""The command line pauses, resumes, retries and forks runs, and ends them by force."""

from __future__ import annotations

import pytest

from tests.integration.cli.shell import Shell


def test_a_run_is_paused_found_and_resumed(shell: Shell) -> None:
    run = shell.started("app:approve", ["plan"])
    run_id = run["run_id"]
    paused = shell("runs", "pause", run_id, "--reason", "a look first", "--json")
    assert paused.json == {"run_id": run_id, "paused": True}
    assert shell.run_of(run_id)["attention"]["reason"] == "a look first"
    found = shell("runs", "list", "--status", "paused", "--json").json["runs"]
    assert [each["run_id"] for each in found] == [run_id]
    shell.answered(run, {"approved": True, "note": "go"})
    shell("worker", "app", "--until-idle")
    assert shell.run_of(run_id)["status"] == "SUSPENDED"
    assert shell("runs", "resume", run_id).code == 0
    shell("worker", "app", "--until-idle")
    assert shell.run_of(run_id)["status"] == "COMPLETED"
    late = shell("runs", "pause", run_id)
    assert late.code != 0
    assert run_id in late.err


def test_a_failed_run_is_retried(shell: Shell) -> None:
    run_id = shell("run", "app:fails", "--json").json["run_id"]
    retried = shell("runs", "retry", run_id, "--actor", "Ada", "--json")
    assert retried.json == {"run_id": run_id, "retried": True}
    assert shell.run_of(run_id)["status"] == "SUSPENDED"
    going_on = shell("runs", "retry", run_id)
    assert going_on.code != 0
    assert "cancel it first" in going_on.err
    shell("worker", "app", "--until-idle")
    assert shell.run_of(run_id)["status"] == "FAILED"
    assert "by Ada" in shell("runs", "history", run_id).out


def test_a_run_is_forked_with_edits(shell: Shell) -> None:
    run = shell.started("app:approve", ["plan"])
    shell.answered(run, {"approved": True, "note": "go"})
    shell("worker", "app", "--until-idle")
    events = shell("runs", "history", run["run_id"], "--json").json["events"]
    answer = next(each["number"] for each in events if each["type"] == "HookReceived")
    edit = f'{answer}={{"approved": false, "note": "no"}}'
    forked = shell("runs", "fork", run["run_id"], "--at", str(answer), "--edit", edit, "--json")
    assert forked.code == 0, forked.err
    assert forked.json["forked_from"] == {"run_id": run["run_id"], "event": answer}
    shell("worker", "app", "--until-idle")
    shown = shell.run_of(forked.json["run_id"])
    assert shown["status"] == "COMPLETED"
    assert shown["forked_from"] == {"run_id": run["run_id"], "event": answer}
    assert shown["result"] != shell.run_of(run["run_id"])["result"]
    bad = shell("runs", "fork", run["run_id"], "--edit", "1=2")
    assert bad.code == 2
    assert "RunStarted" in bad.err
    assert shell("runs", "fork", run["run_id"], "--edit", "x").code == 2


def test_a_run_is_ended_by_force_without_its_code(shell: Shell) -> None:
    run = shell.started("app:nap", ["1h"])
    forced = shell("runs", "cancel", run["run_id"], "--force", "--reason", "gone")
    assert forced.code == 0
    shell("worker", "app", "--until-idle")
    assert shell.run_of(run["run_id"])["status"] == "CANCELLED"
    assert "by force" in shell("runs", "history", run["run_id"]).out
    again = shell("runs", "cancel", run["run_id"], "--wait", "1s", "--json")
    assert again.json == {"run_id": run["run_id"], "requested": False, "status": "CANCELLED"}


def test_a_cancel_waits_for_the_end_as_long_as_it_is_told_to(shell: Shell) -> None:
    run = shell.started("app:nap", ["1h"])
    waited = shell("runs", "cancel", run["run_id"], "--wait", "100ms")
    assert waited.code == 6
    assert "the cancel stands" in waited.err


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("retry", "RUN"), 1, "RunNotEnded"),
        (("delete", "RUN"), 1, "RunNotEnded"),
        (("fork", "RUN", "--at", "99"), 2, "none numbered 99"),
        (("fork", "RUN", "--at", "-1"), 2, "--at"),
        (("fork", "RUN", "--edit", "-1=2"), 2, "--edit"),
        (("fork", "RUN", "--edit", "2={"), 2, "not JSON"),
        (("fork", "RUN", "--input", "5"), 2, "--input"),
        (("cancel", "RUN", "--wait", "soon"), 2, "'soon'"),
        (("cancel", "RUN", "--reason", "x" * 1_001), 2, "reason"),
        (("pause", "RUN", "--reason", "x" * 1_001), 2, "reason"),
        (("inbox", "put", "RUN", "", "--value", "1"), 2, "inbox key ''"),
        (("pause", "nowhere"), 4, "'nowhere'"),
        (("chain", "nowhere"), 4, "'nowhere'"),
        (("inbox", "list", "nowhere"), 4, "'nowhere'"),
    ],
)
def test_what_cannot_be_done_is_named_in_both_forms(
    shell: Shell, arguments: tuple[str, ...], code: int, told: str
) -> None:
    run_id = shell.started("app:nap", ["1h"])["run_id"]
    words = [run_id if each == "RUN" else each for each in arguments]
    as_json = shell("runs", *words, "--json")
    assert as_json.code == code
    assert told in f"{as_json.error['type']}: {as_json.error['message']}"
    if code != 1:
        assert told in shell("runs", *words).err
