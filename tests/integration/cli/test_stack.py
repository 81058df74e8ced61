"""Commands on a deployment: what works on a file works on a stack, without a worker here."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from stepwell import Client
from stepwell.adapters.aws import lists
from stepwell.core.messages import CancelRun, HookDecided, Wake
from stepwell.core.records import Attention
from stepwell.errors import InputRejected, WorkflowNotFound
from tests.contract.storage import BUCKET, REGION
from tests.integration.cli.shell import Shell
from tests.integration.cli.stack import FLAGS, STACK, Deployed, deployed


@pytest.fixture
def stack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Deployed]:
    with deployed(tmp_path, monkeypatch, capsys) as made:
        yield made


def test_a_run_is_started_there_and_waited_for(stack: Deployed) -> None:
    with stack.working():
        done = stack("run", "app:hello", "--input", '{"name": "ann", "times": 2}')
    assert done.code == 0, done.err
    assert '{"text":"ANNANN","on":"2030-01-01"}' in done.out.replace(": ", ":").replace(", ", ",")
    assert not (stack.folder / ".stepwell").exists()


def test_a_run_that_waits_is_left_with_the_command_that_answers_it(stack: Deployed) -> None:
    stack.started("app:approve", ["plan"])
    done = stack("run", "app:approve", "--input", '["plan"]', "--idempotency-key", "k")
    assert done.code == 6
    assert f"--stack {STACK} --region {REGION}" in done.err
    assert "stepwell worker" not in done.err


def test_an_answer_a_cancel_and_a_wake_are_sent_there(stack: Deployed) -> None:
    run = stack.started("app:approve", ["plan"])
    [hook] = stack("hooks", "list", "--json").json["hooks"]
    assert hook == run["hooks"][0]
    payload = json.dumps({"approved": True, "note": "go"})
    done = stack("hooks", "resume", hook["token"], "--payload", payload)
    assert (done.code, "worker" in done.err) == (0, False)
    assert stack("runs", "wake", run["run_id"]).code == 0
    assert stack("runs", "cancel", run["run_id"], "--reason", "late").code == 0
    sent = stack.sent()
    assert [type(message) for message in sent] == [HookDecided, Wake, CancelRun]


def test_runs_are_listed_shown_and_told_from_there(stack: Deployed) -> None:
    run_id = stack.started("app:approve", ["plan"])["run_id"]
    [listed] = stack("runs", "list", "--status", "suspended", "--json").json["runs"]
    shown = stack("runs", "show", run_id, "--json").json
    assert shown == {**listed, "input": {"title": "plan"}, "result": None, "context": None}
    events = stack("runs", "history", run_id, "--json").json["events"]
    assert [each["type"] for each in events][-1] == "HookOpened"
    assert stack("runs", "list", "--status", "blocked", "--json").json["runs"] == []
    missing = stack("runs", "show", "nobody", "--json")
    assert (missing.code, missing.error["type"]) == (4, "RunNotFound")


def test_output_of_a_step_is_read_from_there(stack: Deployed) -> None:
    run_id = stack.started("app:talks")["run_id"]
    done = stack("runs", "output", run_id, "talk:1")
    assert (done.code, done.out.splitlines()) == (0, ["one", '{"two": 2}'])


def test_what_is_published_there_is_listed_and_shown(stack: Deployed) -> None:
    done = stack("publish", "app", "--json")
    assert done.code == 0, done.err
    names = [each["name"] for each in done.json["workflows"]]
    assert {"hello", "total"} <= set(names)
    assert all(each["changed"] for each in done.json["workflows"])
    listed = stack("workflows", "list", "--limit", "200", "--json").json["workflows"]
    assert [each["name"] for each in listed] == names[:200]
    hello = stack("workflows", "show", "hello", "--json").json
    assert hello["input_schema"]["required"] == ["name"]
    assert not any(each["changed"] for each in stack("publish", "app", "--json").json["workflows"])


def test_publishing_wakes_blocked_runs_there(stack: Deployed) -> None:
    run_id = stack.started("app:approve", ["plan"])["run_id"]
    client = Client(stack.aws.ports, stack.aws.settings)
    stack.command("publish", "app", *FLAGS)
    assert stack.sent() == []
    block(client, run_id)
    assert stack("publish", "app", "--json").json["woken"] == 1
    assert [type(message) for message in stack.sent()] == [Wake]


def block(client: Client, run_id: str) -> None:
    async def blocked() -> None:
        header = await client.get(run_id)
        note = Attention(kind="BLOCKED", reason="other code", since=1)
        await client._ports.store.update_header(replace(header, attention=note))

    asyncio.run(blocked())


def test_what_is_published_there_can_be_started_by_name(stack: Deployed) -> None:
    client = Client(stack.aws.ports, stack.aws.settings).with_options(idempotency_key="k")
    stack("publish", "app")
    run = asyncio.run(client.start_named("hello", {"name": "ann", "times": 2}))
    stack.work()
    assert asyncio.run(run.result(timeout=0)) == {"text": "ANNANN", "on": "2030-01-01"}
    again = stack(
        "run", "app:hello", "--input", '["ann", 2]', "--idempotency-key", "k", "--json"
    ).json  # fmt: skip
    assert again["run_id"] == run.id
    with pytest.raises(InputRejected):
        asyncio.run(client.start_named("hello", {"name": 1}))
    with pytest.raises(WorkflowNotFound):
        asyncio.run(client.start_named("goodbye", {}))


def test_a_stack_that_is_not_there_is_not_found(stack: Deployed) -> None:
    done = stack.command("runs", "list", "--stack", "shopp", "--region", REGION)
    assert done.code == 4
    assert done.err.splitlines() == [f"Error: no stack 'shopp' in {REGION}, for these credentials"]


def test_a_stack_without_a_region_says_how_to_give_one(stack: Deployed) -> None:
    done = stack.command("runs", "list", "--stack", STACK)
    assert (done.code, "region" in done.err, "Traceback" in done.err) == (2, True, False)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("runs", "list", "--db", "x.db", *FLAGS), "one of them"),
        (("runs", "list", "--profile", "me"), "--stack"),
        (("runs", "list", "--region", REGION), "--stack"),
        (("runs", "list", "--stack", "", "--region", REGION), "name of a stack"),
        (("runs", "list", *FLAGS, "--profile", "nobody"), "nobody"),
        (("worker", "app", "--stack", STACK), "local file"),
    ],
)
def test_a_target_that_cannot_be_meant_is_refused(
    stack: Deployed, arguments: tuple[str, ...], told: str
) -> None:
    done = stack.command(*arguments)
    assert done.code == 2
    assert told in done.err
    assert "Traceback" not in done.err


def test_a_page_that_has_found_none_so_far_says_how_to_go_on(
    stack: Deployed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "RUNS_LOOKED_AT", 1)
    for n in range(6):
        stack.started("app:approve", ["plan"], key=f"k{n}")
    listing = ("runs", "list", "--status", "cancelled", "--limit", "1")
    done = stack(*listing)
    assert (done.code, done.out) == (0, "")
    told, more = done.err.splitlines()
    assert told == "no runs so far"
    cursor = more.removeprefix("more: --cursor ")
    while (done := stack(*listing, "--cursor", cursor, "--json")).json["cursor"]:
        cursor = done.json["cursor"]
    assert stack(*listing, "--cursor", cursor).err == "no runs\n"


def test_without_botocore_it_says_what_to_install(
    stack: Deployed, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("deployment", "session"):
        monkeypatch.delitem(sys.modules, f"stepwell.adapters.aws.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "botocore.session", None)
    done = stack("runs", "list")
    assert done.code == 1
    assert done.err.splitlines() == ["Error: --stack needs botocore: pip install 'stepwell[aws]'"]


#: Nothing that could hold credentials, and no network to ask for them.
_NOBODY = {
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": "none",
    "AWS_SHARED_CREDENTIALS_FILE": "none",
    **dict.fromkeys(
        (
            "AWS_ACCESS_KEY_ID",
            "AWS_CONTAINER_CREDENTIALS_FULL_URI",
            "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
            "AWS_SECRET_ACCESS_KEY",
            "AWS_WEB_IDENTITY_TOKEN_FILE",
        ),
        "",
    ),
}


def test_without_credentials_it_says_so_in_one_line(shell: Shell) -> None:
    done = shell("runs", "list", *FLAGS, "--json", **_NOBODY)
    assert done.code == 5
    assert len(done.err.splitlines()) == 1
    assert "credentials" in done.error["message"]


def test_a_client_finds_the_deployment_that_its_environment_names(
    stack: Deployed, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = stack.started("app:approve", ["plan"])["run_id"]
    monkeypatch.setenv("AWS_REGION", REGION)
    monkeypatch.setenv("STEPWELL_TABLE", stack.aws.table.name)
    monkeypatch.setenv("STEPWELL_BUCKET", BUCKET)
    monkeypatch.setenv("STEPWELL_RUN_QUEUE_URL", stack.queue_url)
    signal_queue = stack.queue_url.replace("run.fifo", "signal.fifo")
    monkeypatch.setenv("STEPWELL_SIGNAL_QUEUE_URL", signal_queue)
    monkeypatch.setenv("STEPWELL_KEYS_SECRET", "keys")
    client = Client.from_env()
    [hook] = asyncio.run(client.list_hooks(run_id=run_id)).items
    answered = asyncio.run(client.resume_hook(hook.token, {"approved": True, "note": "go"}))
    assert answered.run_id == run_id
    stack.work()
    assert asyncio.run(client.result(run_id, timeout=0)) == "PLAN: True, go"
