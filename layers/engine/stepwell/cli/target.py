"""What a command is about: the file of a local engine, or a stack on AWS.

A command only sees a target: how to open it, and what a command that we suggest needs to find it.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Concatenate, ParamSpec, Protocol

import typer

from stepwell.adapters.local.environment import DB_VARIABLE, DEFAULT_DB
from stepwell.adapters.local.runtime import LEASE, LocalEngine
from stepwell.cli.failing import BadInput, NotFound, NotInstalled
from stepwell.cli.render import talk
from stepwell.client import Client
from stepwell.core.records import Millis
from stepwell.engine.ports import Ports

P = ParamSpec("P")

Db = Annotated[
    Path | None,
    typer.Option(
        "--db",
        metavar="PATH",
        help=f"File of the local engine; by default ${DB_VARIABLE}, else {DEFAULT_DB}.",
        show_default=False,
    ),
]
_StackName = Annotated[
    str | None,
    typer.Option(
        "--stack",
        metavar="NAME",
        help="A deployment on AWS instead: the name of its stack.",
        show_default=False,
    ),
]
_Profile = Annotated[
    str | None,
    typer.Option("--profile", metavar="NAME", help="AWS profile, for --stack.", show_default=False),
]
_Region = Annotated[
    str | None,
    typer.Option("--region", metavar="NAME", help="AWS region, for --stack.", show_default=False),
]


@dataclass(frozen=True, slots=True)
class Opened:
    """A target in use. `engine` can work on runs in this process; a stack works by itself."""

    client: Client
    ports: Ports
    engine: LocalEngine | None = None


class Target(Protocol):
    """A place where runs stand."""

    @property
    def flag(self) -> str:
        """What a command that we suggest needs, in order to find the same place."""

    @property
    def is_local(self) -> bool:
        """Whether runs go on only while somebody here works on them."""

    def open(self) -> AbstractContextManager[Opened]:
        """The place in use. A file is made if it is not there."""

    def open_existing(self) -> AbstractContextManager[Opened]:
        """The place in use. Raises `NotFound` or `StackNotFound` if it is not there."""


@dataclass(frozen=True, slots=True)
class File:
    """The file of a local engine. `named` says that the command line names it."""

    path: Path
    named: bool

    @classmethod
    def of(cls, db: Path | None) -> File:
        """The file that flag, environment or default names, in this order."""
        if db is not None:
            return cls(db, named=True)
        return cls(Path(os.environ.get(DB_VARIABLE) or DEFAULT_DB), named=False)

    @property
    def flag(self) -> str:
        """What a command that we suggest needs, in order to find the same file."""
        return f" --db {shlex.quote(str(self.path))}" if self.named else ""

    @property
    def is_local(self) -> bool:
        """Runs in a file go on only while somebody works on them."""
        return True

    @contextmanager
    def open(self) -> Iterator[Opened]:
        """The engine on the file, which is made if it is not there."""
        with self.engine() as engine:
            yield _opened(engine)

    @contextmanager
    def open_existing(self) -> Iterator[Opened]:
        """The engine on the file. Raises `NotFound` if it is not there, and makes none."""
        inside = self.path / Path(DEFAULT_DB).name
        if inside.is_file():
            raise NotFound(f"{str(self.path)!r} is a folder: name the file in it, {str(inside)!r}")
        if not self.path.is_file():
            raise NotFound(
                f"no file {str(self.path)!r}: name one with --db or ${DB_VARIABLE}, "
                "or make it with stepwell run"
            )
        with LocalEngine.open(self.path) as engine:
            yield _opened(engine)

    def engine(self, lease: Millis = LEASE) -> LocalEngine:
        """The engine on the file, which is made if it is not there.

        From here on the workflows' own code finds the same file through the environment.
        """
        os.environ[DB_VARIABLE] = str(self.path.absolute())
        return LocalEngine.open(self.path, lease=lease)


def _opened(engine: LocalEngine) -> Opened:
    return Opened(engine.client, engine.local.ports, engine)


@dataclass(frozen=True, slots=True)
class Stack:
    """A deployment on AWS, by the name of its stack."""

    name: str
    profile: str | None
    region: str | None

    @property
    def flag(self) -> str:
        """What a command that we suggest needs, in order to find the same stack."""
        given = {"--stack": self.name, "--profile": self.profile, "--region": self.region}
        return "".join(f" {flag} {shlex.quote(text)}" for flag, text in given.items() if text)

    @property
    def is_local(self) -> bool:
        """A deployment has workers of its own."""
        return False

    @contextmanager
    def open(self) -> Iterator[Opened]:
        """The deployment. Raises `StackNotFound`, `NotInstalled`."""
        try:
            # By name: botocore is an extra, and slow to import for those who do not use it.
            deployments = importlib.import_module("stepwell.adapters.aws.deployment")
        except ModuleNotFoundError as error:
            missing, _, _ = (error.name or "").partition(".")
            raise NotInstalled(f"--stack needs {missing}: pip install 'stepwell[aws]'") from None
        with deployments.open_stack(
            self.name, profile=self.profile, region=self.region
        ) as deployment:
            yield Opened(Client(deployment.ports, deployment.settings), deployment.ports)

    def open_existing(self) -> AbstractContextManager[Opened]:
        """The deployment: no command of ours makes one."""
        return self.open()


def target_of(
    db: Path | None, stack: str | None, profile: str | None, region: str | None
) -> Target:
    """The target that the command line names. Raises `BadInput` where it names two."""
    if stack is None:
        for flag, given in (("--profile", profile), ("--region", region)):
            if given is not None:
                raise BadInput(f"{flag} is for a deployment: name it with --stack")
        return File.of(db)
    if db is not None:
        raise BadInput("--db names a file and --stack a deployment: give one of them")
    if not stack:
        raise BadInput("--stack: give the name of a stack")
    return Stack(stack, profile, region)


def suggest_worker(target: Target, why: str) -> None:
    """Say what carries a run on, where nothing does so by itself."""
    if target.is_local:
        talk(f"{why}: stepwell worker MODULE{target.flag}")


def on_target(command: Callable[Concatenate[Target, P], None]) -> Callable[..., None]:
    """Give a command the options that name its target, which it gets as its first argument."""
    _, *others = inspect.signature(command, eval_str=True).parameters.values()
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in _OPTIONS.items()
    ]

    @functools.wraps(command)
    def on_its_target(
        *,
        db: Path | None,
        stack: str | None,
        profile: str | None,
        region: str | None,
        **arguments: Any,
    ) -> None:
        command(target_of(db, stack, profile, region), **arguments)  # type: ignore[call-arg]

    every = sorted([*others, *options], key=lambda each: each.name == "as_json")  # --json is last
    on_its_target.__signature__ = inspect.Signature(every)  # type: ignore[attr-defined]
    on_its_target.__annotations__ = {each.name: each.annotation for each in every}
    return on_its_target


_OPTIONS: dict[str, Any] = {
    "db": Db,
    "stack": _StackName,
    "profile": _Profile,
    "region": _Region,
}
