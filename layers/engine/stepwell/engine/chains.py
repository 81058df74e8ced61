"""Chains of guards: what the names that a run keeps stand for in this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from stepwell.authoring.guards import is_local, local_guard, shown_name
from stepwell.core.definitions import GuardDefinition
from stepwell.core.records import Guards
from stepwell.errors import StepwellError


class UnknownGuard(StepwellError):
    """A run has a guard that this process does not know, so none of its steps may run here."""

    def __init__(self, name: str) -> None:
        advice = (
            "it is a function of the process that gave it to the run: go on there, or resume the "
            "run with other guards; one that every process finds is declared with @step_guard"
            if is_local(name)
            else "import the module that declares it, or resume the run with other guards"
        )
        super().__init__(f"guard {shown_name(name)!r} is not known here: {advice}")
        self.name = name


class GuardChain(NamedTuple):
    """The guards of a run's steps, found."""

    before: tuple[GuardDefinition, ...]
    after: tuple[GuardDefinition, ...]


def found(guards: Guards, known: Callable[[str], GuardDefinition | None]) -> GuardChain:
    """The guards behind the names that a run keeps. Raises `UnknownGuard`."""

    def find(name: str) -> GuardDefinition:
        guard = local_guard(name) if is_local(name) else known(name)
        if guard is None:
            raise UnknownGuard(name)
        return guard

    return GuardChain(tuple(map(find, guards.before)), tuple(map(find, guards.after)))
