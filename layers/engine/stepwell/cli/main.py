"""The `stepwell` command."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated

import typer

from stepwell.cli import check, history, hooks, replay, runs, streams, work, workflows
from stepwell.cli.failing import ExitCode, exit_code, show, show_json
from stepwell.cli.options import Command, Group
from stepwell.cli.render import talk

app = typer.Typer(
    name="stepwell",
    cls=Group,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command(cls=Command)(work.run)
app.command(cls=Command)(work.worker)
app.command(cls=Command)(workflows.publish)
app.command(cls=Command)(check.check)
app.command(cls=Command)(replay.replay)
app.add_typer(runs.app, name="runs")
app.add_typer(history.app, name="history")
app.add_typer(hooks.app, name="hooks")
app.add_typer(streams.app, name="streams")
app.add_typer(workflows.app, name="workflows")


def _show_version(asked: bool) -> None:
    if asked:
        print(f"stepwell {version('stepwell')}")
        raise typer.Exit


@app.callback()
def stepwell(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", callback=_show_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Durable functions: run them, look at them, answer their questions."""


def main() -> None:
    """Run the command that the process was called with, and exit."""
    sys.exit(run_command(sys.argv[1:]))


def run_command(arguments: Sequence[str]) -> int:
    """Run a command. Returns its exit code; whatever went wrong is said on stderr."""
    as_json = "--json" in arguments
    try:
        code = app(list(arguments), prog_name="stepwell", standalone_mode=False)
        sys.stdout.flush()
    except (KeyboardInterrupt, typer.Abort):
        if as_json:
            show_json("Interrupted", "interrupted")
        else:
            talk("interrupted")
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        # Nobody reads any more; the interpreter must not find that out again while it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.FAILURE
    except typer.TyperException as error:
        _show_misuse(error, as_json=as_json)
        return error.exit_code
    except Exception as error:
        show(error, as_json=as_json)
        return exit_code(error)
    return code if isinstance(code, int) else ExitCode.OK


def _show_misuse(error: typer.TyperException, *, as_json: bool) -> None:
    error.message = error.message.replace("Value error, ", "")  # whose error it is helps nobody
    if as_json:
        show_json("UsageError", error.format_message())
        return
    shown = getattr(error, "show", None)
    if shown is None:
        talk(f"Error: {error.format_message()}")
    else:
        shown()


if __name__ == "__main__":
    main()
