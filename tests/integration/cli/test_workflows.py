"""`stepwell publish` and `stepwell workflows`, on a file."""

from __future__ import annotations

import json

from tests.integration.cli.shell import Shell

BLOCKED = """
from stepwell import hook, step, workflow

@step
async def other() -> None: ...

@workflow
async def approve(title: str) -> str:
    \"\"\"Ask before going on.\"\"\"
    await other()
    return await hook("verdict")
"""


def test_what_a_module_defines_is_published_and_can_be_looked_at(shell: Shell) -> None:
    published = shell("publish", "app", "--json")
    assert published.code == 0, published.err
    assert published.json["woken"] == 0
    assert {"hello", "total"} <= {each["name"] for each in published.json["workflows"]}
    listed = shell("workflows", "list", "--limit", "2", "--json").json
    assert [each["name"] for each in listed["workflows"]] == ["answers_itself", "approve"]
    more = shell("workflows", "list", "--limit", "1", "--cursor", listed["cursor"], "--json").json
    assert [each["name"] for each in more["workflows"]] == ["boiler"]
    shown = shell("workflows", "show", "hello", "--json").json
    assert shown.keys() == {
        "name", "version", "description", "digest", "published_at", "input_schema", "result_schema",
    }  # fmt: skip
    assert shown["input_schema"]["required"] == ["name"]


def test_people_get_a_table_and_facts(shell: Shell) -> None:
    shell.module.write_text(BLOCKED)
    assert "approve   1        yes" in shell("publish", "app").out
    assert "approve   1        no" in shell("publish", "app").out
    assert "Ask before going on." in shell("workflows", "list").out
    shown = shell("workflows", "show", "approve").out
    assert '"required": ["title"]' in shown
    assert shown.endswith("Ask before going on.\n")


def test_publishing_wakes_the_blocked_runs_of_what_is_published(shell: Shell) -> None:
    run = shell.started("app:approve", ["plan"])
    original = shell.module.read_text()
    shell.change(BLOCKED)
    shell.answered(run, {"approved": True, "note": "go"})
    assert shell("worker", "app", "--until-idle").code == 0
    assert shell.run_of(run["run_id"])["attention"]["kind"] == "BLOCKED"
    shell.change(original)
    done = shell("publish", "app")
    assert (done.code, "woke 1 blocked run" in done.err) == (0, True)
    assert "stepwell worker" in done.err
    shell("worker", "app", "--until-idle")
    assert shell.run_of(run["run_id"])["result"] == "PLAN: True, go"


def test_what_is_not_published_is_not_found(shell: Shell) -> None:
    assert shell("workflows", "list").code == 4
    shell("publish", "app")
    done = shell("workflows", "show", "nothing", "--json")
    assert (done.code, done.error["type"]) == (4, "WorkflowNotFound")
    assert shell("workflows", "list", "--cursor", "x").code == 2


def test_a_package_stands_for_all_modules_in_it(shell: Shell) -> None:
    package = shell.module.parent / "shop"
    (package / "desk").mkdir(parents=True)
    for folder in (package, package / "desk"):
        (folder / "__init__.py").touch()
    (package / "__main__.py").write_text("raise SystemExit(1)")
    (package / "desk" / "refunds.py").write_text(BLOCKED)
    done = shell("publish", "shop", "--json")
    assert [each["name"] for each in done.json["workflows"]] == ["approve"]
    (package / "broken.py").write_text("import nowhere_to_be_found")
    done = shell("publish", "shop")
    assert (done.code, "shop.broken" in done.err) == (1, True)


def test_modules_that_hold_no_workflow_or_are_not_there_are_refused(shell: Shell) -> None:
    shell.module.write_text("")
    for module in ("app", "nowhere"):
        assert shell("publish", module).code == 2
    assert json.loads(shell("publish", "app", "--json").err)["error"]["type"] == "BadInput"
