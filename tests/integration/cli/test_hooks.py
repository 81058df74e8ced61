"""`stepwell hooks`: who waits for an answer, and giving it."""

from __future__ import annotations

from tests.integration.cli.conftest import Standing
from tests.integration.cli.shell import Shell

HOOK_KEYS = {
    "run_id", "hook_id", "name", "step", "token", "created_at", "expires_at", "due_at", "schema",
    "question",
}  # fmt: skip

ANSWER = '{"approved": true, "note": "go"}'


def test_open_hooks_are_listed_with_token_and_schema(standing: Standing) -> None:
    listed = standing.shell("hooks", "list", "--json").json
    [hook] = listed["hooks"]
    assert listed["cursor"] is None
    assert set(hook) == HOOK_KEYS
    assert hook == standing.waiting["hooks"][0]
    assert hook["hook_id"] == "verdict:1"
    assert set(hook["schema"]["required"]) == {"approved", "note"}
    assert hook["token"] in standing.shell("hooks", "list").out


def test_hooks_of_one_run_are_listed(standing: Standing) -> None:
    shell = standing.shell
    waiting, ended = standing.waiting["run_id"], standing.completed["run_id"]
    assert len(shell("hooks", "list", "--run", waiting, "--json").json["hooks"]) == 1
    none = shell("hooks", "list", "--run", ended)
    assert (none.code, none.out) == (0, "")
    assert "no hook is open" in none.err
    assert shell("hooks", "list", "--run", "absent").code == 4


def test_the_first_answer_counts_and_the_same_one_is_no_error(shell: Shell) -> None:
    run = shell.started("app:approve", ["plan"])
    token = run["hooks"][0]["token"]
    resume = ("hooks", "resume", token, "--json", "--payload")
    first = shell(*resume, ANSWER, "--actor", "eve")
    again = shell(*resume, '{"note": "go", "approved": true}')
    other = shell(*resume, '{"approved": false, "note": "go"}')
    assert (first.code, again.code, other.code) == (0, 0, 1)
    assert first.json["repeated"] is False
    assert again.json == {**first.json, "repeated": True}
    assert first.json["hook_id"] == "verdict:1"
    assert other.error["type"] == "HookAlreadyDecided"
    shell("worker", "app", "--until-idle")
    assert shell.run_of(run["run_id"])["result"] == "PLAN: True, go"
    assert "by eve" in shell("runs", "history", run["run_id"]).out


def test_a_payload_that_does_not_fit_leaves_the_hook_open(shell: Shell) -> None:
    run = shell.started("app:approve", ["plan"])
    token = run["hooks"][0]["token"]
    refused = shell("hooks", "resume", token, "--payload", '{"approved": "?"}', "--json")
    assert refused.code == 2
    assert refused.error["type"] == "PayloadRejected"
    assert "/approved" in refused.error["message"]
    assert "note" in refused.error["message"]
    assert shell("hooks", "resume", token, "--payload", "-", stdin=ANSWER).code == 0


def test_a_token_comes_from_stdin_or_from_a_file(shell: Shell) -> None:
    run = shell.started("app:two_questions")
    first, second = (hook["token"] for hook in run["hooks"])
    (shell.folder / "token").write_text(f"{second}\n")
    by_stdin = shell("hooks", "resume", "-", "--payload", "1", "--json", stdin=f"{first}\n")
    by_file = shell("hooks", "resume", "@token", "--payload", "2", "--json")
    assert by_stdin.json["hook_id"] == run["hooks"][0]["hook_id"]
    assert by_file.json["hook_id"] == run["hooks"][1]["hook_id"]


def test_token_and_payload_cannot_share_stdin(standing: Standing) -> None:
    done = standing.shell("hooks", "resume", "-", "--payload", "-", "--json")
    assert done.code == 2
    assert "both" in done.error["message"]


def test_a_payload_that_is_no_json_is_refused(standing: Standing) -> None:
    done = standing.shell("hooks", "resume", "k1.a.b.c", "--payload", "{yes}", "--json")
    assert done.code == 2
    assert "--payload is not JSON: line 1, column 2" in done.error["message"]


def test_a_token_of_nobody_is_not_found(standing: Standing) -> None:
    token = standing.waiting["hooks"][0]["token"]
    for forged in ("nonsense", token[:-1] + ("A" if token[-1] != "A" else "B")):
        done = standing.shell("hooks", "resume", forged, "--payload", ANSWER, "--json")
        assert done.code == 4
        assert done.error["type"] == "InvalidToken"


def test_an_answer_after_the_end_comes_too_late(shell: Shell) -> None:
    run = shell.started("app:approve", ["plan"])
    shell("runs", "cancel", run["run_id"])
    shell("worker", "app", "--until-idle")
    token = run["hooks"][0]["token"]
    late = shell("hooks", "resume", token, "--payload", ANSWER, "--json")
    assert late.code == 1
    assert late.error["type"] == "HookExpired"


def test_the_only_open_hook_of_a_run_needs_no_token(shell: Shell) -> None:
    run = shell.started("app:approve", ["plan"])
    resume = ("hooks", "resume", "--run", run["run_id"], "--payload", ANSWER, "--json")
    assert shell(*resume).json["run_id"] == run["run_id"]
    none_left = shell(*resume)
    assert none_left.code == 4
    assert "has no open hook" in none_left.error["message"]


def test_one_of_several_hooks_has_to_be_named(shell: Shell) -> None:
    run = shell.started("app:two_questions")
    done = shell("hooks", "resume", "--run", run["run_id"], "--payload", "1", "--json")
    assert done.code == 2
    for hook in run["hooks"]:
        assert hook["hook_id"] in done.error["message"]
    for hook in run["hooks"]:
        assert shell("hooks", "resume", hook["token"], "--payload", f'"{hook["name"]}"').code == 0
    shell("worker", "app", "--until-idle")
    assert shell.run_of(run["run_id"])["result"] == ["left", "right"]


def test_token_or_run_has_to_be_given(standing: Standing) -> None:
    neither = standing.shell("hooks", "resume", "--payload", "1", "--json")
    both = standing.shell("hooks", "resume", "k1.a.b.c", "--run", "r", "--json")
    assert (neither.code, both.code) == (2, 2)
    assert "stepwell hooks list" in neither.error["message"]
