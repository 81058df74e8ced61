"""Scenarios: what somebody outside does, what goes wrong, and what must come of it. All of it data.

A file holds `[[scenario]]` tables. `read_all` reads them strictly: a word that nobody knows is an
error, so that nothing is written down that is not played. `README.md` here explains the words.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

FOLDER = Path(__file__).parent / "scenarios"
D = TypeVar("D")


class Unreadable(Exception):
    """A scenario says something that is not understood."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One thing that somebody does; `acts.py` knows how. With `together`, beside the one before."""

    do: str
    name: str = ""
    together: bool = False
    times: int = 1
    of: str = ""
    workflow: str = ""
    input: Mapping[str, Any] = field(default_factory=dict)
    key: str = ""
    hook: str = ""
    payload: Any = None
    by: str = ""
    what: str = ""
    #: A stream and its run: "orders/order-7".
    stream: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The deployment: a workflow, the acts in their order, and what is unusual about it."""

    workflow: str = ""
    acts: tuple[Act, ...] = ()
    workers: int = 2
    steppers: int = 1
    skews: tuple[int, ...] = (0,)
    paged: bool = False
    inline_limit: int = 8_192
    hard_limit: int = 4_194_304
    limits: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slip:
    """One fault at one call: the `nth` call `at` by `who`, each time with `nth = 0`."""

    kind: str
    at: str
    nth: int = 1
    who: str = ""
    #: When a process goes on that froze: "quiet", "late" or "never".
    thaws: str = "quiet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What goes wrong: nothing, a script, one thing at every place, chance, or all there is."""

    script: tuple[Slip, ...] = ()
    everywhere: tuple[str, ...] = ()
    #: Of whose calls; everybody's when it is empty.
    who: str = ""
    budget: Mapping[str, int] = field(default_factory=dict)
    seeds: int = 0
    explore: bool = False
    depth: int = 60
    limit: int = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Expect:
    """What is true in the end. What is not said is not looked at, but laws and promises always."""

    status: str | tuple[str, ...] = ()
    result: Any = None
    results: tuple[Any, ...] = ()
    error: str = ""
    says: str = ""
    attention: str | None = None
    attention_says: str = ""
    told: Mapping[str, Any] = field(default_factory=dict)
    tally: Mapping[str, int] = field(default_factory=dict)
    effects: Mapping[str, Any] = field(default_factory=dict)
    events: Mapping[str, Any] = field(default_factory=dict)
    order: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    #: Tables with `after`, `event`, and `least` or `most`: how far apart the two come.
    gaps: tuple[Mapping[str, str], ...] = ()
    hooks: Mapping[str, str] = field(default_factory=dict)
    output: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    turns: Mapping[str, int] = field(default_factory=dict)
    runs: int = 1
    open_hooks: int = 0
    messages: int = 0
    dead_letters: Any = 0
    #: What turns may raise by themselves; anything else that no fault explains is a defect.
    errors: tuple[str, ...] = ()
    #: Tables like this one about single runs, by the name of who started them.
    of: Mapping[str, Expect] = field(default_factory=dict)
    #: Whether every play must come to what a play without faults comes to.
    same: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One scenario: played, or proved by a `test` that stands elsewhere."""

    id: str
    guarantee: str
    title: str
    setup: Setup = field(default_factory=Setup)
    fault: Fault = field(default_factory=Fault)
    expect: Expect = field(default_factory=Expect)
    test: str = ""


def read_all(folder: Path = FOLDER) -> tuple[Scenario, ...]:
    """All scenarios of a folder, in the order of files and lines."""
    found: list[Scenario] = []
    for path in sorted(folder.glob("*.toml")):
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
        unknown = set(tables) - {"scenario"}
        if unknown:
            raise Unreadable(f"{path.name}: {sorted(unknown)}")
        found += [_scenario(table, path.name) for table in tables.get("scenario", [])]
    return tuple(found)


def _scenario(table: Mapping[str, Any], file: str) -> Scenario:
    where = f"{file}: {table.get('id', 'one without an id')}"
    setup = dict(table.get("setup", {}))
    acts = tuple(_build(Act, act, f"{where}: act") for act in setup.get("acts", ()))
    fault = dict(table.get("fault", {}))
    script = tuple(_build(Slip, slip, f"{where}: fault") for slip in fault.get("script", ()))
    played = "setup" in table
    if played == ("test" in table):
        raise Unreadable(f"{where}: it is either played or proved by a test")
    values = dict(table)
    if played:
        values["setup"] = _build(Setup, setup | {"acts": acts}, f"{where}: setup")
        values["fault"] = _build(Fault, fault | {"script": script}, f"{where}: fault")
        values["expect"] = _expect(table.get("expect", {}), f"{where}: expect")
    return _build(Scenario, values, where)


def _expect(table: Mapping[str, Any], where: str) -> Expect:
    of = {name: _expect(each, f"{where} of {name}") for name, each in table.get("of", {}).items()}
    return _build(Expect, {**table, "of": of}, where)


def _build(kind: type[D], table: Mapping[str, Any], where: str) -> D:
    known = {each.name for each in fields(kind)}  # type: ignore[arg-type]
    unknown = set(table) - known
    if unknown:
        raise Unreadable(f"{where}: {sorted(unknown)} is not known, {sorted(known)} is")
    try:
        return kind(**{name: _frozen(value) for name, value in table.items()})
    except TypeError as error:
        raise Unreadable(f"{where}: {error}") from None


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
