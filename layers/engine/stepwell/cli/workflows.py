"""`stepwell publish` and `stepwell workflows`: what a deployment says of its workflows."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import redirect_stdout
from typing import Annotated

import typer

from stepwell.authoring.registry import registry
from stepwell.cli.failing import BadInput
from stepwell.cli.load import load_for_worker
from stepwell.cli.options import AsJson, Command, Cursor, Group, Limit
from stepwell.cli.render import Output, compact, count, one_line, plain, short, talk
from stepwell.cli.target import Target, on_target, suggest_worker
from stepwell.core.records import PublishedWorkflow
from stepwell.shapes import iso, workflow_shape, workflow_summary

app = typer.Typer(
    cls=Group, no_args_is_help=True, help="Workflows that are published: what can be started."
)


@on_target
def publish(
    target: Target,
    *,
    modules: Annotated[
        list[str],
        typer.Argument(metavar="MODULE...", help="Modules whose workflows are published."),
    ],
    as_json: AsJson = False,
) -> None:
    """Tell a deployment what its workflows take and return, and wake its blocked runs of them.

    It publishes what the code here says: do it right after deploying that code.
    """
    out = Output(as_json=as_json)
    with redirect_stdout(sys.stderr):
        for module in modules:
            load_for_worker(module)
        found = registry.workflows()
        if not found:
            raise BadInput(f"no workflow is defined in {', '.join(modules)}")
    definitions = [found[name] for name in sorted(found)]
    with target.open() as opened:
        done = asyncio.run(opened.client.publish(definitions, wake_all=True))
    if as_json:
        workflows = [
            {**workflow_summary(each), "changed": each.name in done.changed}
            for each in done.workflows
        ]
        out.json({"workflows": workflows, "woken": done.woken})
        return
    out.table(
        ("workflow", "version", "changed"),
        [
            (each.name, one_line(each.version), "yes" if each.name in done.changed else "no")
            for each in done.workflows
        ],
    )
    if done.woken:
        talk(f"woke {count(done.woken, 'blocked run')}")
        suggest_worker(target, "a worker looks at what was woken")


@app.command("list", cls=Command)
@on_target
def list_workflows(
    target: Target, *, limit: Limit = 50, cursor: Cursor = None, as_json: AsJson = False
) -> None:
    """List the workflows that are published, by name."""
    out = Output(as_json=as_json)
    with target.open_existing() as opened:
        try:
            page = asyncio.run(opened.client.list_definitions(limit=limit, cursor=cursor))
        except ValueError as error:
            raise BadInput(f"--cursor: {error}") from None
    if as_json:
        workflows = [workflow_summary(each) for each in page.items]
        out.json({"workflows": workflows, "cursor": page.cursor})
        return
    if not page.items:
        talk("no workflow is published")
        return
    out.table(("workflow", "version", "published", "what it does"), list(map(_row, page.items)))
    if page.cursor is not None:
        talk(f"more: --cursor {page.cursor}")


def _row(workflow: PublishedWorkflow) -> tuple[str, ...]:
    first, _, _ = workflow.description.partition("\n")
    return workflow.name, one_line(workflow.version), iso(workflow.published_at), short(first)


@app.command(cls=Command)
@on_target
def show(
    target: Target,
    *,
    workflow: Annotated[str, typer.Argument(metavar="WORKFLOW", help="Name of the workflow.")],
    as_json: AsJson = False,
) -> None:
    """Show what is published of a workflow: version, description, JSON schemas."""
    out = Output(as_json=as_json)
    with target.open_existing() as opened:
        found = asyncio.run(opened.client.get_definition(workflow))
    if as_json:
        out.json(workflow_shape(found))
        return
    facts = {
        "workflow": found.name,
        "version": one_line(found.version),
        "published": iso(found.published_at),
        "input": compact(json.loads(found.input_schema)),
    }
    if found.result_schema is not None:
        facts["result"] = compact(json.loads(found.result_schema))
    out.facts(facts)
    for line in found.description.splitlines():
        out.line(plain(line))
