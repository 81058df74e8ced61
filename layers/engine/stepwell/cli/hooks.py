"""`stepwell hooks`: questions that wait for an answer. The only list that shows tokens."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from stepwell.cli.failing import BadInput, NotFound
from stepwell.cli.load import read_json, read_text
from stepwell.cli.options import AsJson, Command, Cursor, Group, Limit
from stepwell.cli.render import Output, talk
from stepwell.cli.target import Target, on_target, suggest_worker
from stepwell.client import Client, PendingHook
from stepwell.shapes import hook_shape, iso, resumed_shape

app = typer.Typer(
    cls=Group, no_args_is_help=True, help="Questions of runs that wait for an answer."
)

_Run = Annotated[
    str | None, typer.Option("--run", metavar="RUN", help="Of this run only.", show_default=False)
]

_COLUMNS = ("run", "hook", "name", "since", "until", "token")


@app.command("list", cls=Command)
@on_target
def list_hooks(
    target: Target,
    *,
    run: _Run = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """List open hooks with their tokens, oldest first. Whoever has a token can answer."""
    out = Output(as_json=as_json)
    with target.open_existing() as opened:
        try:
            page = asyncio.run(
                opened.client.list_hooks(run_id=run, limit=limit, cursor=cursor),
            )
        except ValueError as error:
            raise BadInput(f"--cursor: {error}") from None
        if run is not None and not page.items:
            asyncio.run(opened.client.get(run))
    if as_json:
        out.json({"hooks": [hook_shape(hook) for hook in page.items], "cursor": page.cursor})
        return
    if not page.items:
        talk("no hook is open")
        return
    out.table(_COLUMNS, [_row(hook) for hook in page.items])
    if page.cursor is not None:
        talk(f"more: --cursor {page.cursor}")


def _row(hook: PendingHook) -> tuple[str, ...]:
    until = hook.expires_at if hook.expires_at is not None else hook.due_at
    shown = "" if until is None else iso(until)
    return hook.run_id, hook.hook_id, hook.name, iso(hook.created_at), shown, hook.token


@app.command(cls=Command)
@on_target
def resume(
    target: Target,
    *,
    token: Annotated[
        str | None,
        typer.Argument(
            metavar="[TOKEN|-|@FILE]",
            help="The hook's token; from stdin or a file it stays out of the list of processes.",
            show_default=False,
        ),
    ] = None,
    payload: Annotated[
        str,
        typer.Option("--payload", metavar="JSON|-|@FILE", help="The answer."),
    ] = "null",
    run: Annotated[
        str | None,
        typer.Option(
            "--run",
            metavar="RUN",
            help="Instead of a token: the only open hook of this run.",
            show_default=False,
        ),
    ] = None,
    actor: Annotated[
        str | None,
        typer.Option("--actor", help="Who answers, for the record.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Answer a hook. The first answer counts; the same one again is no error."""
    if (token is None) == (run is None):
        raise BadInput("give the hook's TOKEN, or --run RUN; stepwell hooks list shows them")
    out = Output(as_json=as_json)
    if "-" == token == payload:
        raise BadInput("TOKEN and --payload cannot both come from stdin")
    answer = read_json(payload, "--payload").value
    if token is not None:
        token = read_text(token, "TOKEN")[0].strip()
    with target.open_existing() as opened:
        if run is not None:
            token = asyncio.run(_only_token(opened.client, run))
        assert token is not None
        resumed = asyncio.run(opened.client.resume_hook(token, answer, actor=actor))
    if as_json:
        out.json(resumed_shape(resumed))
        return
    taken = "was answered so before" if resumed.repeated else "answered"
    out.line(f"hook {resumed.hook_id} of run {resumed.run_id} {taken}")
    suggest_worker(target, "a worker carries the run on")


async def _only_token(client: Client, run_id: str) -> str:
    hooks = (await client.list_hooks(run_id=run_id, limit=200)).items
    if not hooks:
        header = await client.get(run_id)
        raise NotFound(f"run {run_id!r} has no open hook; it is {header.status}")
    if len(hooks) > 1:
        ids = ", ".join(hook.hook_id for hook in hooks)
        raise BadInput(f"run {run_id!r} has several open hooks ({ids}): give the token of one")
    return hooks[0].token
