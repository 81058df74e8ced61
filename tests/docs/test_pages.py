"""What the pages of the documentation show runs, as it stands there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from stepwell.authoring.registry import registry
from stepwell.testing import Environment

DOCS = Path(__file__).parents[2] / "docs"


def examples(page: str) -> dict[str, Any]:
    """The names that the Python blocks of a page define."""
    text = (DOCS / page).read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert blocks, page
    names: dict[str, Any] = {"__name__": f"docs.{page}"}
    exec(compile("\n".join(blocks), page, "exec", dont_inherit=True), names)
    return names


def test_fan_out() -> None:
    with registry.isolated(), Environment() as env:
        crawl = examples("fan-out.md")["crawl"]
        assert env.run(crawl, ["a", "bc"]) == "13 characters"


def test_keys() -> None:
    with registry.isolated(), Environment() as env:
        settle = examples("keys.md")["settle"]
        run = env.start(settle, ["7", "8", "7"])
        env.run_until_idle()
        assert env.result(run) == ["RECEIPT OF 7", "RECEIPT OF 8", "RECEIPT OF 7"]
        completed = [e.event.step for e in env.history(run) if e.event.type == "StepCompleted"]
        assert completed[:2] == ["charge=charge-7", "charge=charge-8"]


def test_step_options() -> None:
    with registry.isolated(), Environment() as env:
        assert env.run(examples("step-options.md")["pay"], "12") == "wired 12"


def test_conditions() -> None:
    with registry.isolated(), Environment() as env:
        run = env.start(examples("conditions.md")["publish"])
        env.run_until_idle()
        env.advance("1h")
        assert env.result(run) == "published after 3 looks"


def test_sagas(capsys: pytest.CaptureFixture[str]) -> None:
    with registry.isolated(), Environment() as env:
        run = env.start(examples("sagas.md")["book"], "Oslo")
        env.run_until_idle()
        env.advance("1h")
        assert env.get(run).status == "FAILED"
    said = capsys.readouterr().out.splitlines()
    assert said == ["released what there is for Oslo", "cancelled flight to Oslo"]


def test_logging(caplog: pytest.LogCaptureFixture) -> None:
    with registry.isolated(), Environment() as env, caplog.at_level("INFO", "stepwell.author"):
        run = env.start(examples("logging.md")["watch"])
        env.run_until_idle()
        env.advance("2h")
        assert env.result(run) == 1
    lines = [each.message for each in caplog.records if each.name == "stepwell.author"]
    assert lines == ["begins", "goes on", "looks, for the 1. time"]


def test_versions() -> None:
    with registry.isolated(), Environment() as env:
        checkout = examples("versions.md")["checkout"]
        assert env.run(checkout, "a") == "checked and paid a"


def test_context() -> None:
    with registry.isolated(), Environment() as env:
        names = examples("context.md")
        assert env.run(names["parcel"], "a") == "packed a"
        [page] = env.wait_for(env.client.list_runs(attributes={"stage": "packed"})).items
        assert page.attributes == '{"order":"a","stage":"packed"}'
        starter = env.client.with_options(context=names["Caller"](tenant="acme"))
        run = env.wait_for(starter.start(names["spending"]))
        env.run_until_idle()
        assert env.result(run) == "acme has 9"


def test_children() -> None:
    with registry.isolated(), Environment() as env:
        names = examples("children.md")
        run = env.start(names["order"], 7)
        assert env.run_to_end(run) == ["parcel 7", "parcel 8"]
        watching = env.start(names["watch"], 998)
        env.run_until_idle()
        env.advance("3h")
        assert env.result(watching) == 1_000
        assert len(env.wait_for(env.client.chain(watching.id))) == 3


def test_streams() -> None:
    with registry.isolated(), Environment() as env:
        names = examples("streams.md")
        run = env.start(names["shift"], "b7")
        env.run_until_idle()
        for kind, payload in (("measured", {"celsius": 96}), ("measured", {"celsius": 50})):
            env.wait_for(env.client.emit("boiler", kind, payload, stream_run_id="b7"))
        env.run_until_idle()
        assert [wait.reason for wait in env.get(run).waiting] == ["an engineer has to look"]
        env.wait_for(names["look_after"](env.client, "b7"))
        env.run_until_idle()
        assert env.result(run) == 96.0
        env.advance("2h")
        numbered = env.wait_for(env.client.signals("boiler", stream_run_id="b7"))
        assert [each.payload.get("celsius") for each in numbered] == [20.0, None, 96, 50, 20, None]


def test_scripts(tmp_path: Path) -> None:
    with registry.isolated(), Environment() as env:
        names = examples("scripts.md")
        briefing = names["briefing"]
        run = env.start(briefing, "tea")
        env.run_until_idle()
        env.put_inbox(run, "approved", "Ada")
        assert env.result(run) == "2 facts, signed off by Ada"
        script = briefing.run("tea", journal_dir=tmp_path)
        assert script.error.message == "waiting on sign-off"


def test_cancellation() -> None:
    with registry.isolated(), Environment() as env:
        book = examples("cancellation.md")["book"]
        run = env.start(book, "12A")
        env.run_until_idle()
        env.cancel(run)
        assert env.get(run).status == "CANCELLED"
        released = [e.event for e in env.history(run) if e.event.type == "StepCompleted"][-1]
        assert getattr(released, "step", None) == "release:1"


def test_operating() -> None:
    with registry.isolated(), Environment() as env:
        names = examples("operating.md")
        run = env.start(names["settle"])
        env.run_until_idle()
        env.pause(run)
        env.resume_hook(env.hooks(run)[0].token, "yes")
        env.resume(run)
        assert env.get(run).status == "FAILED"
        names["DOWN"].clear()
        env.retry(run)
        assert env.result(run) == ["shop done", "yes", "bank done"]
        answered = next(e.number for e in env.history(run) if e.event.type == "HookReceived")
        forked = env.wait_for(env.client.fork(run.id, at=answered, edits={answered: "no"}))
        env.run_until_idle()
        assert env.result(forked) == ["shop done", "no", "bank done"]
