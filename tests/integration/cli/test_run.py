"""`stepwell run`: start, work, and say how the run stands."""

from __future__ import annotations

import json
import shlex
import signal

import pytest

from tests.integration.cli.shell import Shell

RUN_KEYS = {
    "run_id", "workflow", "version", "status", "created_at", "updated_at", "last_event", "waiting",
    "attention", "cancel_requested", "idempotency_key", "tags", "attributes", "context", "error",
    "forked_from", "parent", "continued_from", "continued_to", "kept_until", "input", "result",
    "hooks",
}  # fmt: skip


def test_a_run_is_worked_to_its_end_and_its_result_is_printed(shell: Shell) -> None:
    done = shell("run", "app:hello", "--input", '{"name": "world", "times": 2}')
    assert done.code == 0
    facts = dict(line.split(None, 1) for line in done.out.splitlines())
    assert facts["status"] == "COMPLETED"
    assert json.loads(facts["result"]) == {"text": "WORLDWORLD", "on": "2030-01-01"}
    assert "drafting" in done.err
    assert (shell.folder / ".stepwell" / "stepwell.db").is_file()


def test_json_has_one_shape_and_values_are_json(shell: Shell) -> None:
    done = shell("run", "app:hello", "--input", '{"name": "world", "on": "2031-02-03"}', "--json")
    run = done.json
    assert done.code == 0
    assert set(run) == RUN_KEYS
    assert run["input"] == {"name": "world", "times": 1, "on": "2031-02-03"}
    assert run["result"] == {"text": "WORLD", "on": "2031-02-03"}
    assert run["hooks"] == run["waiting"] == []
    assert run["created_at"].endswith("Z")


def test_an_array_gives_positional_arguments_and_a_registered_name_is_found(shell: Shell) -> None:
    assert shell("run", "app:total", "--input", "[1, 2, 3]", "--json").json["result"] == 6


def test_input_comes_from_stdin_or_from_a_file(shell: Shell) -> None:
    (shell.folder / "given.json").write_text('["moon"]')
    by_file = shell("run", "app:hello", "--input", "@given.json", "--json")
    by_stdin = shell("run", "app:hello", "--input", "-", "--json", stdin='{"name": "eve"}')
    assert by_file.json["result"]["text"] == "MOON"
    assert by_stdin.json["result"]["text"] == "EVE"


def test_the_file_is_named_by_flag_before_environment(shell: Shell) -> None:
    (shell.folder / "env").mkdir()
    assert shell("run", "app:total", STEPWELL_DB="env/a.db").code == 0
    assert shell("run", "app:total", "--db", "b.db", STEPWELL_DB="env/c.db").code == 0
    found = sorted(str(path.relative_to(shell.folder)) for path in shell.folder.rglob("*.db"))
    assert found == ["b.db", "env/a.db"]


def test_steps_find_the_same_file_through_the_environment(shell: Shell) -> None:
    done = shell("run", "app:answers_itself", "--db", "here.db", "--json")
    assert done.json["result"] == "by myself"


def test_a_near_timer_and_a_near_deadline_are_waited_for(shell: Shell) -> None:
    assert shell("run", "app:nap", "--input", '["30ms"]', "--json").json["result"] == "rested"
    assert shell("run", "app:brief_question", "--json").json["result"] == "nobody"


def test_a_far_timer_ends_the_command_and_not_the_run(shell: Shell) -> None:
    done = shell("run", "app:nap", "--input", '["1h"]', "--wait", "1m", "--json")
    assert done.code == 6
    assert done.json["status"] == "SUSPENDED"
    assert [wait["kind"] for wait in done.json["waiting"]] == ["timer"]
    assert "stepwell worker app" in done.err


def test_a_run_that_waits_for_a_person_prints_the_command_that_answers_it(shell: Shell) -> None:
    done = shell("run", "app:approve", "--input", '["plan"]', "--db", "my runs.db")
    assert done.code == 6
    assert "waiting   hook verdict:1" in done.out
    [command] = [line for line in done.err.splitlines() if "hooks resume" in line]
    words = shlex.split(command)
    assert words[:3] == ["stepwell", "hooks", "resume"]
    assert shell(*words[1:]).code == 0
    assert shell("worker", "app", "--until-idle", "--db", "my runs.db").code == 0
    [run] = shell("runs", "list", "--json", "--db", "my runs.db").json["runs"]
    assert run["status"] == "COMPLETED"


def test_a_run_rests_with_its_child_and_shows_what_that_asks(shell: Shell) -> None:
    done = shell("run", "app:delegates", "--input", '["plan"]', "--json")
    assert done.code == 6
    assert [wait["kind"] for wait in done.json["waiting"]] == ["child"]
    [hook] = done.json["hooks"]
    assert hook["run_id"] != done.json["run_id"]
    shown = shell("runs", "show", hook["run_id"])
    assert f"{done.json['run_id']}, as approve:1" in shown.out
    shell("hooks", "resume", hook["token"], "--payload", '{"approved": true, "note": "go"}')
    assert shell("worker", "app", "--until-idle").code == 0
    run = shell("runs", "show", done.json["run_id"], "--json").json
    assert run["status"] == "COMPLETED"
    history = shell("runs", "history", done.json["run_id"]).out
    assert f"run {hook['run_id']}" in history


def test_a_run_that_goes_on_is_followed_and_its_chain_shown(shell: Shell) -> None:
    done = shell("run", "app:rounds", "--input", "[2]", "--json")
    assert (done.code, done.json["result"]) == (0, "done")
    chain = shell("runs", "chain", done.json["run_id"], "--json").json["chain"]
    assert [each["status"] for each in chain] == ["CONTINUED", "CONTINUED", "COMPLETED"]
    assert chain[-1]["run_id"] == done.json["run_id"]
    first = chain[0]["run_id"]
    table = shell("runs", "chain", first).out.splitlines()
    assert [line.split()[0] for line in table] == ["run", *(each["run_id"] for each in chain)]
    assert f"as {chain[1]['run_id']}" in shell("runs", "show", first).out
    listed = shell("runs", "list", "--status", "continued", "--json").json["runs"]
    assert len(listed) == 2
    cancelled = shell("runs", "cancel", first, "--json")
    assert cancelled.code == 0


def test_a_failed_run_ends_with_3(shell: Shell) -> None:
    done = shell("run", "app:fails", "--json")
    assert done.code == 3
    assert done.json["status"] == "FAILED"
    assert done.json["error"]["cause"]["message"] == "not today"


def test_the_same_key_with_the_same_input_is_the_same_run(shell: Shell) -> None:
    arguments = ("run", "app:hello", "--input", '["world"]', "--idempotency-key", "k", "--json")
    first, second = shell(*arguments), shell(*arguments)
    assert first.json == second.json
    assert first.json["idempotency_key"] == "k"


def test_the_same_key_with_another_input_is_refused(shell: Shell) -> None:
    shell("run", "app:hello", "--input", '["world"]', "--idempotency-key", "k")
    other = shell("run", "app:hello", "--input", '["moon"]', "--idempotency-key", "k", "--json")
    assert other.code == 1
    assert other.error["type"] == "IdempotencyConflict"
    assert "'k'" in other.error["message"]


def test_an_interrupted_run_goes_on_later(shell: Shell) -> None:
    running = shell.begin("run", "app:nap", "--input", '["1h"]', "--wait", "2h", "--json")
    running.says("of workflow nap")
    running.send(signal.SIGINT)
    assert running.end().code == 130
    assert len(shell("runs", "list", "--json").json["runs"]) == 1


def test_bad_input_is_refused_and_nothing_is_started(shell: Shell) -> None:
    done = shell("run", "app:hello", "--input", '{"name": "world",\n "times" 2}', "--json")
    assert done.code == 2
    assert done.out == ""
    assert "--input is not JSON: line 2, column 10" in done.error["message"]
    assert not (shell.folder / ".stepwell").exists()


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("nowhere:hello", "no module 'nowhere'"),
        ("app:nothing", "app:approve, app:boiler, app:brief_question"),
        ("app", "app:hello"),
        ("app.py:hello", "name the module as in an import: app"),
    ],
)
def test_a_target_that_is_not_there_is_named(shell: Shell, target: str, told: str) -> None:
    done = shell("run", target, "--json")
    assert done.code == 2
    assert told in done.error["message"]


@pytest.mark.parametrize("source", ["import absent_library", "raise SystemExit(3)"])
def test_a_module_that_cannot_be_imported_is_a_failure(shell: Shell, source: str) -> None:
    (shell.folder / "broken.py").write_text(source)
    done = shell("run", "broken:hello", "--json")
    assert done.code == 1
    assert done.error["type"] == "ImportFailed"
    assert "module 'broken'" in done.error["message"]


def test_the_error_of_a_broken_module_is_shown_with_its_place(shell: Shell) -> None:
    (shell.folder / "broken.py").write_text("1 / 0")
    done = shell("run", "broken:hello")
    assert 'broken.py", line 1' in done.err
    assert "ZeroDivisionError" in done.err.splitlines()[-1]


def test_a_notification_that_failed_is_said_and_waited_for(shell: Shell) -> None:
    done = shell("run", "app:notifies_late", "--input", '["50ms"]', "--json")
    assert done.code == 6
    assert "attempt 1 to notify of hook asked:1 failed: " in done.err
    assert "nobody was told" not in done.err
    assert (shell.folder / "notified").read_text().split() == [done.json["hooks"][0]["token"]] * 2


def test_a_notification_to_come_later_is_told_of(shell: Shell) -> None:
    done = shell("run", "app:notifies_late", "--input", '["1h"]')
    assert done.code == 6
    told = "nobody was told of hook asked:1: stepwell.errors.RetryableError: nobody is listening"
    assert told in done.err
    assert "it is tried again at " in done.err


def test_a_failure_is_shown_with_the_place_that_it_comes_from(shell: Shell) -> None:
    done = shell("run", "app:fails")
    assert done.code == 3
    assert 'raise FatalError("not today")' in done.out
    assert "stepwell.errors.FatalError: not today" in done.out.splitlines()


def test_names_that_do_not_fit_are_named(shell: Shell) -> None:
    done = shell("run", "app:hello", "--input", '{"nmae": "world", "time": 2}', "--json")
    assert done.code == 2
    assert done.error["message"].endswith("unknown: nmae, time; missing: name")


def test_no_wait_needs_no_unit(shell: Shell) -> None:
    assert shell("run", "app:nap", "--input", '["1s"]', "--wait", "0").code == 6


def test_files_of_a_new_engine_are_for_their_owner_alone(shell: Shell) -> None:
    reading = shell.begin("run", "app:nap", "--input", '["1h"]', "--wait", "2h")
    reading.says("of workflow nap")
    folder = shell.folder / ".stepwell"
    modes = {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}
    reading.send(signal.SIGINT)
    reading.end()
    assert set(modes) == {"stepwell.db", "stepwell.db-wal", "stepwell.db-shm"}
    assert set(modes.values()) == {0o600}
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_bad_wait_is_refused(shell: Shell) -> None:
    done = shell("run", "app:hello", "--wait", "10", "--json")
    assert done.code == 2
    assert done.error["message"].startswith("--wait")
