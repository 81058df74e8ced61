"""What the command line names and carries: modules, workflows and JSON."""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from stepwell.authoring.decorators import Workflow
from stepwell.cli.failing import BadInput, ImportFailed
from stepwell.errors import PayloadError

#: What is meant as a text, if it is no JSON.
_WORD = re.compile(r"[^\W\d][\w .:/@-]{0,60}")

Call = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Json:
    """JSON as it was given, and what it stands for."""

    text: str
    value: Any


def load_module(name: str) -> ModuleType:
    """Import a module; the current folder comes first. Raises `BadInput`, `ImportFailed`."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    if name.endswith(".py") or "/" in name:
        dotted = ".".join(Path(name).with_suffix("").parts)
        raise BadInput(f"{name!r} is a path; name the module as in an import: {dotted}")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # A missing import inside the module is another matter than a missing module.
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise ImportFailed(f"module {name!r} cannot be imported: {error}") from error
        raise BadInput(
            f"no module {error.name!r}: it is neither in {here!r} nor installed"
        ) from None
    except (Exception, SystemExit) as error:
        told = f"{type(error).__name__}: {error}"
        raise ImportFailed(f"module {name!r} cannot be imported: {told}") from error


def load_workflow(target: str) -> Workflow[Any, Any]:
    """The workflow that `module:workflow` names. Raises `BadInput`, `ImportFailed`."""
    module_name, _, name = target.partition(":")
    module = load_module(module_name)
    found = _workflows(module)
    by_registered = {each.definition.name: each for each in found.values()}
    workflow = found.get(name) or by_registered.get(name)
    if workflow is None:
        there = ", ".join(f"{module_name}:{each}" for each in sorted(found)) or "none"
        missing = f"no workflow {name!r} in module" if name else "name a workflow of module"
        raise BadInput(f"{missing} {module_name!r}; there is: {there}")
    return workflow


def load_for_worker(target: str) -> None:
    """Import the module of `module` or `module:workflow`, so that its workflows are registered.

    A package stands for all modules in it, as it does for the functions of a deployment.
    """
    if ":" in target:
        load_workflow(target)
        return
    module = load_module(target)
    for found in pkgutil.walk_packages(getattr(module, "__path__", ()), f"{target}."):
        if not found.name.endswith(".__main__"):
            load_module(found.name)


def _workflows(module: ModuleType) -> dict[str, Workflow[Any, Any]]:
    return {name: each for name, each in vars(module).items() if isinstance(each, Workflow)}


def read_text(given: str, option: str) -> tuple[str, str]:
    """Text given as it is, as `-` for stdin or as `@file`; and how to name where it came from.

    Raises `BadInput`.
    """
    try:
        if given == "-":
            return sys.stdin.read(), f"{option} (stdin)"
        if given.startswith("@"):
            return Path(given[1:]).read_text(encoding="utf-8"), f"{option} {given}"
    except OSError as error:
        raise BadInput(f"{option} {given}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise BadInput(f"{option} {given}: not UTF-8: {error}") from None
    return given, option


def read_json(given: str, option: str) -> Json:
    """JSON given as text, as `-` for stdin or as `@file`. Raises `BadInput` with the place."""
    text, source = read_text(given, option)
    try:
        return Json(text, json.loads(text, parse_constant=_refuse_constant))
    except json.JSONDecodeError as error:
        raise BadInput(
            f"{source} is not JSON: line {error.lineno}, column {error.colno}: {error.msg}"
            f"{_in_quotes(text)}"
        ) from None
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{source} is not JSON: {error}") from None


def _in_quotes(text: str) -> str:
    """What to write for a text whose quotes were left out, or were taken away by the shell."""
    if not _WORD.fullmatch(text):
        return ""
    return f"; a text has quotes of its own: {shlex.quote(json.dumps(text, ensure_ascii=False))}"


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def call_of(workflow: Workflow[Any, Any], given: Json) -> Call:
    """The arguments that JSON gives, by their declared types. Raises `BadInput`.

    An object holds arguments by name, an array positional ones.
    """
    definition = workflow.definition
    if isinstance(given.value, dict):
        _check_names(workflow, given.value)
        text = given.text
    elif isinstance(given.value, list):
        named = _by_name(workflow, given.value)
        _check_names(workflow, named)
        text = json.dumps(named)
    else:
        raise BadInput("--input takes a JSON object (arguments by name) or a JSON array")
    try:
        return definition.arguments.decode(text)
    except PayloadError as error:
        reason = error.reason.removeprefix("Value error, ")
        raise _misfit(workflow, f"value at {error.path}: {reason}") from None


def _check_names(workflow: Workflow[Any, Any], given: dict[str, Any]) -> None:
    """Refuse names that are no parameters, and say which required ones are missing."""
    parameters = inspect.signature(workflow.definition.function).parameters
    unknown = [name for name in given if name not in parameters]
    missing = [
        name
        for name, each in parameters.items()
        if name not in given
        and each.default is each.empty
        and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    ]
    wrong = [
        f"{what} {', '.join(names)}"
        for what, names in (("unknown:", unknown), ("missing:", missing))
        if names
    ]
    if wrong:
        raise _misfit(workflow, "; ".join(wrong))


def _misfit(workflow: Workflow[Any, Any], what: str) -> BadInput:
    name = workflow.definition.name
    return BadInput(f"--input does not fit {name}{_signature(workflow)}: {what}")


def _by_name(workflow: Workflow[Any, Any], values: list[Any]) -> dict[str, Any]:
    named: dict[str, Any] = {}
    rest = list(values)
    for parameter in inspect.signature(workflow.definition.function).parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            named[parameter.name], rest = rest, []
        elif (
            parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD) and rest
        ):
            named[parameter.name] = rest.pop(0)
    if rest:
        name = workflow.definition.name
        taken = len(values) - len(rest)
        raise BadInput(
            f"--input has {len(values)} positional arguments, "
            f"{name}{_signature(workflow)} takes {taken}"
        )
    return named


def _signature(workflow: Workflow[Any, Any]) -> str:
    return str(inspect.signature(workflow.definition.function))
