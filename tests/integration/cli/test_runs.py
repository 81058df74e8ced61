"""`stepwell runs`: list, show, history, output, cancel."""

from __future__ import annotations

import os
import pty
import re
import subprocess
from datetime import datetime
from importlib.metadata import version

import pytest

from tests.integration.cli.conftest import Standing
from tests.integration.cli.shell import COMMAND, Shell

SUMMARY_KEYS = {
    "run_id", "workflow", "version", "status", "created_at", "updated_at", "last_event", "waiting",
    "attention", "cancel_requested", "idempotency_key", "tags", "error", "forked_from",
    "parent", "continued_from", "continued_to", "attributes", "kept_until",
}  # fmt: skip


def test_runs_are_listed_newest_first(standing: Standing) -> None:
    listed = standing.shell("runs", "list", "--json").json
    expected = [standing.waiting, standing.failed, standing.completed, standing.answered]
    assert [run["run_id"] for run in listed["runs"]] == [run["run_id"] for run in expected]
    assert all(set(run) == SUMMARY_KEYS for run in listed["runs"])
    assert listed["cursor"] is None


def test_a_list_goes_on_at_its_cursor(standing: Standing) -> None:
    first = standing.shell("runs", "list", "--limit", "3", "--json").json
    second = standing.shell("runs", "list", "--cursor", first["cursor"], "--json").json
    assert len(first["runs"]) == 3
    assert [run["run_id"] for run in second["runs"]] == [standing.answered["run_id"]]


def test_a_list_can_be_narrowed(standing: Standing) -> None:
    failed = standing.shell("runs", "list", "--status", "failed", "--json").json["runs"]
    approvals = standing.shell("runs", "list", "--workflow", "approve", "--json").json["runs"]
    assert [run["workflow"] for run in failed] == ["fails"]
    assert [run["workflow"] for run in approvals] == ["approve", "approve"]


def test_a_list_can_be_narrowed_to_what_calls_for_attention(shell: Shell) -> None:
    shell.started("app:approve", ["other"])
    run = shell.started("app:approve", ["plan"])
    fitting = shell.module.read_text()
    shell.change(fitting.replace("text = await draft(title)", "text = await refuse()"))
    shell.answered(run, {"approved": True, "note": "go"})
    shell("worker", "app", "--until-idle")
    blocked = shell("runs", "list", "--status", "blocked", "--json").json
    assert [each["run_id"] for each in blocked["runs"]] == [run["run_id"]]
    assert len(shell("runs", "list", "--status", "SUSPENDED", "--json").json["runs"]) == 2
    none = shell("runs", "list", "--status", "stuck")
    assert (none.code, none.out, none.err) == (0, "", "no runs\n")
    assert {"blocked,", "stuck,", "paused."} <= set(shell("runs", "list", "--help").out.split())
    shell.change(fitting)
    shell("worker", "app", "--until-idle")
    assert shell("runs", "list", "--status", "blocked", "--json").json["runs"] == []


def test_the_table_holds_whole_ids_and_no_colour_codes(standing: Standing) -> None:
    lines = standing.shell("runs", "list").out.splitlines()
    assert lines[0].split() == ["run", "workflow", "status", "created", "updated", "waiting"]
    assert lines[1].split()[:3] == [standing.waiting["run_id"], "approve", "SUSPENDED"]
    assert lines[1].endswith("hook verdict:1")
    assert not any("\x1b" in line for line in lines)


def on_terminal(shell: Shell, *arguments: str, **environment: str) -> str:
    """What a command writes to a terminal."""
    ours, theirs = pty.openpty()
    try:
        subprocess.run(
            [*COMMAND, *arguments],
            cwd=shell.folder,
            env=shell.environment(TERM="xterm-256color", **environment),
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            timeout=60,
            check=True,
        )
        return os.read(ours, 65536).decode()
    finally:
        os.close(ours)
        os.close(theirs)


def test_colour_is_for_terminals_and_can_be_declined(standing: Standing) -> None:
    colour = re.compile("\x1b\\[(?:[0-9]+;)*3[0-9]m")
    assert colour.search(on_terminal(standing.shell, "runs", "list"))
    assert not colour.search(on_terminal(standing.shell, "runs", "list", NO_COLOR="1"))


def test_a_run_is_shown_with_what_it_waits_for(standing: Standing) -> None:
    run_id = standing.waiting["run_id"]
    shown = standing.shell("runs", "show", run_id)
    assert "waiting   hook verdict:1 since " in shown.out
    assert f"stepwell hooks list --run {run_id}" in shown.err
    [wait] = standing.shell.run_of(run_id)["waiting"]
    assert (wait["kind"], wait["id"], wait["name"]) == ("hook", "verdict:1", "verdict")


def test_a_failed_run_shows_its_error(standing: Standing) -> None:
    run_id = standing.failed["run_id"]
    shown = standing.shell("runs", "show", run_id).out
    assert "error" in shown
    assert 'raise FatalError("not today")' in shown
    assert "Traceback (most recent call last):" in shown
    assert standing.shell.run_of(run_id)["error"]["cause"]["type"] == "stepwell.errors.FatalError"


def test_a_history_is_a_timeline(standing: Standing) -> None:
    done = standing.shell("runs", "history", standing.answered["run_id"])
    lines = done.out.splitlines()
    assert lines[0].split() == ["#", "time", "offset", "event", "name", "id", "details"]
    rows = [line.split() for line in lines[1:]]
    assert [row[0] for row in rows] == ["1", "2", "3", "4", "5"]
    assert [row[3] for row in rows] == [
        "RunStarted",
        "StepCompleted",
        "HookOpened",
        "HookReceived",
        "RunCompleted",
    ]
    assert all(datetime.fromisoformat(row[1]).utcoffset() is not None for row in rows)
    assert rows[0][2] == "+0ms"
    assert rows[1][4:6] == ["draft", "draft:1"]
    assert 'answer {"approved":true,"note":"go"}' in lines[4]
    assert "waited " in lines[4]


def test_a_history_tells_of_failed_attempts(standing: Standing) -> None:
    lines = standing.shell("runs", "history", standing.completed["run_id"]).out.splitlines()
    [retry] = [line for line in lines if "StepRetryScheduled" in line]
    [end] = [line for line in lines if "StepCompleted" in line]
    assert "attempt 1" in retry
    assert "ConnectionError: the line is [bold]dead[/bold]" in retry
    assert "again in 20ms" in retry
    assert "attempt 2" in end


def test_a_history_in_json_carries_values_as_json(standing: Standing) -> None:
    run_id = standing.answered["run_id"]
    history = standing.shell("runs", "history", run_id, "--json").json
    events = history["events"]
    assert history["run_id"] == run_id
    assert [event["number"] for event in events] == [1, 2, 3, 4, 5]
    assert events[0]["input"] == {"title": "plan"}
    assert events[1]["result"] == "PLAN"
    assert events[3]["payload"] == {"approved": True, "note": "go"}
    assert all(event["at"].endswith("Z") for event in events)


def test_tokens_stay_out_of_what_is_not_about_hooks(standing: Standing) -> None:
    token = standing.waiting["hooks"][0]["token"]
    run_id = standing.waiting["run_id"]
    for arguments in (("list",), ("show", run_id), ("history", run_id)):
        for form in ((), ("--json",)):
            done = standing.shell("runs", *arguments, *form)
            assert token not in done.out + done.err


@pytest.mark.parametrize(
    "verb", [["show"], ["history"], ["cancel"], ["wake"], ["output", "talk:1"]]
)
def test_an_unknown_run_is_not_found(standing: Standing, verb: list[str]) -> None:
    done = standing.shell("runs", verb[0], "absent", *verb[1:], "--json")
    assert done.code == 4
    assert done.out == ""
    assert done.error == {"type": "RunNotFound", "message": "run 'absent': not found"}


def test_a_bad_cursor_and_a_bad_status_are_usage_errors(standing: Standing) -> None:
    cursor = standing.shell("runs", "list", "--cursor", "xx", "--json")
    status = standing.shell("runs", "list", "--status", "happy", "--json")
    assert (cursor.code, status.code) == (2, 2)
    assert cursor.error["message"].startswith("--cursor")
    assert "'completed'" in status.error["message"]
    assert "Value error" not in status.error["message"]


def test_usage_errors_are_said_in_the_form_that_was_asked_for(standing: Standing) -> None:
    told, as_json = standing.shell("runs", "show"), standing.shell("runs", "show", "--json")
    assert (told.code, as_json.code) == (2, 2)
    assert "Missing argument 'RUN'" in told.err
    assert as_json.error["type"] == "UsageError"


def test_looking_makes_no_file(shell: Shell) -> None:
    done = shell("runs", "list", "--db", "absent.db", "--json")
    assert done.code == 4
    assert done.error["type"] == "NotFound"
    assert "'absent.db'" in done.error["message"]
    assert not (shell.folder / "absent.db").exists()


@pytest.mark.breaks_laws("its file is none of ours")
def test_a_file_of_something_else_is_left_alone(shell: Shell) -> None:
    (shell.folder / "notes.db").write_text("these are notes, and no database\n" * 100)
    done = shell("runs", "list", "--db", "notes.db", "--json")
    assert done.code == 1
    assert "notes.db" in done.error["message"]


def test_it_is_no_crash_when_nobody_reads(standing: Standing) -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [*COMMAND, "runs", "list"],
            cwd=standing.shell.folder,
            env=standing.shell.environment(),
            stdout=write,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )
    finally:
        os.close(write)
    assert done.stderr == b""


def test_a_cancelled_run_ends_by_its_next_worker(shell: Shell) -> None:
    run = shell.started("app:nap", ["1h"])
    asked = shell("runs", "cancel", run["run_id"], "--reason", "no more need", "--json")
    assert asked.code == 0
    assert asked.json == {"run_id": run["run_id"], "requested": True, "status": "SUSPENDED"}
    assert "cancel    requested" in shell("runs", "show", run["run_id"]).out
    shell("worker", "app", "--until-idle")
    assert shell.run_of(run["run_id"])["status"] == "CANCELLED"
    assert "no more need" in shell("runs", "history", run["run_id"]).out
    again = shell("runs", "cancel", run["run_id"], "--json")
    assert again.json == {"run_id": run["run_id"], "requested": False, "status": "CANCELLED"}


def test_output_of_a_step_is_printed_and_followed(shell: Shell) -> None:
    run = shell.started("app:talks")
    output = ("runs", "output", run["run_id"], "talk:1")
    assert shell(*output).out == 'one\n{"two": 2}\n'
    assert shell(*output, "--after", "1").out == '{"two": 2}\n'
    follower = shell.begin(*output, "--follow", "--json")
    first = follower.prints()
    shell.answered(run, "three")
    shell("worker", "app", "--until-idle")
    done = follower.end()
    assert done.code == 0
    chunks = shell(*output, "--json").out
    assert first + done.out == chunks
    assert chunks.splitlines()[2] == (
        '{"position": 3, "number": 3, "reset": false, "value": "three"}'
    )


def test_output_of_a_step_that_put_out_nothing_is_empty(standing: Standing) -> None:
    done = standing.shell("runs", "output", standing.completed["run_id"], "stumble:1")
    assert (done.code, done.out) == (0, "")
    assert "no output of step 'stumble:1'" in done.err


@pytest.mark.parametrize("follow", [[], ["--follow"]])
def test_a_step_that_is_not_there_is_not_found(standing: Standing, follow: list[str]) -> None:
    run_id = standing.completed["run_id"]
    done = standing.shell("runs", "output", run_id, "typo:1", "--json", *follow)
    assert (done.code, done.out) == (4, "")
    assert done.error == {
        "type": "NotFound",
        "message": "no step 'typo:1' in this run; steps so far: stumble:1",
    }


def test_a_follower_is_told_that_its_step_has_not_begun(shell: Shell) -> None:
    run = shell.started("app:talks_later")
    follower = shell.begin("runs", "output", run["run_id"], "talk:1", "--follow")
    told = follower.says("no step 'talk:1' in this run")
    assert told.strip().endswith("steps so far: none; waiting for it to begin")
    shell.answered(run)
    shell("worker", "app", "--until-idle")
    assert follower.prints() == "one\n"
    assert shell("runs", "cancel", run["run_id"]).code == 0
    shell("worker", "app", "--until-idle")
    assert follower.end().code == 0


def test_flags_are_shown_without_a_type(standing: Standing) -> None:
    for command in ([], ["run"], ["runs", "output"], ["hooks", "resume"], ["worker"]):
        assert "bool" not in standing.shell(*command, "--help").out


def test_the_version_is_the_package_s(standing: Standing) -> None:
    assert standing.shell("--version").out == f"stepwell {version('stepwell')}\n"


def test_waking_a_run_says_who_goes_on(shell: Shell) -> None:
    run = shell.started("app:nap", ["1h"])
    woken = shell("runs", "wake", run["run_id"])
    assert woken.code == 0
    assert woken.out == f"run {run['run_id']}: woken\n"
    assert "stepwell worker" in woken.err
