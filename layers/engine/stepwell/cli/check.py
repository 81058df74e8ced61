"""`stepwell check`: workflow code that a replay may come to otherwise, found without running it."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from stepwell.cli.failing import BadInput, ExitCode
from stepwell.cli.options import AsJson
from stepwell.cli.render import Output, count, one_line, talk
from stepwell.lint import Finding, check_source


def check(
    *,
    modules: Annotated[
        list[str],
        typer.Argument(metavar="MODULE...", help="Modules, packages, files or folders to look at."),
    ],
    as_json: AsJson = False,
) -> None:
    """Look for what would come out otherwise on a replay: clocks, randomness, I/O, sets, threads.

    Only workflow code is looked at, and functions of the same module that it calls; steps are free.
    Nothing is imported or run. A line with `# stepwell: ignore[CODE]` is left alone. The exit code
    is 1 if something is found.
    """
    out = Output(as_json=as_json)
    files = sorted({file for module in modules for file in _files(module)})
    found = [each for file in files for each in check_source(_read(file), _shown(file))]
    if as_json:
        out.json({"files": len(files), "findings": [asdict(each) for each in found]})
    else:
        for each in found:
            out.line(_line(each))
        talk(f"{count(len(found), 'finding')} in {count(len(files), 'file')}")
    if found:
        raise typer.Exit(ExitCode.FAILURE)


def _line(found: Finding) -> str:
    place = f"{found.path}:{found.line}:{found.column}"
    return f"{place}: {found.code} {one_line(found.what)}: {found.advice} [{found.workflow}]"


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{_shown(file)} cannot be read: {error}") from None


def _shown(file: Path) -> str:
    here = Path.cwd()
    return str(file.relative_to(here)) if file.is_relative_to(here) else str(file)


def _files(name: str) -> Iterator[Path]:
    """The files of a module, a package, a file or a folder. Raises `BadInput`."""
    path = Path(name)
    if not (name.endswith(".py") or "/" in name or path.is_dir()):
        path = _of_module(name)
    if path.is_dir():
        yield from (each.resolve() for each in path.rglob("*.py"))
    elif path.is_file():
        yield path.resolve()
    else:
        raise BadInput(f"no file or folder {name!r}")


def _of_module(name: str) -> Path:
    """Where a module lies, by its name; what is in the current folder comes first."""
    if all(part.isidentifier() for part in name.split(".")):
        for base in _bases(name.partition(".")[0]):
            found = base.joinpath(*name.split("."))
            for each in (found, found.with_suffix(".py")):
                if each.exists():
                    return each
    raise BadInput(f"no module {name!r}: it is neither in {str(Path.cwd())!r} nor installed")


def _bases(package: str) -> Iterator[Path]:
    """Folders in which a package may lie. Finding it imports nothing; its modules would."""
    yield Path.cwd()
    spec = importlib.util.find_spec(package)
    if spec is not None:
        yield from (Path(place).parent for place in spec.submodule_search_locations or ())
        if spec.origin is not None:
            yield Path(spec.origin).parent
