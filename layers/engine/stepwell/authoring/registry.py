"""Which workflows, steps and guards exist, by registered name.

Names are global and do not come from module paths, since the same file has another path in Lambda
than in a test. Two definitions under one name are refused when the second is imported, also in one
file. Loading the same definition again (the same place in the same file) replaces it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import TypeVar

from stepwell.core.definitions import (
    GuardDefinition,
    StepDefinition,
    StreamStepDefinition,
    WorkflowDefinition,
)
from stepwell.errors import DefinitionError

D = TypeVar("D", WorkflowDefinition, StepDefinition, GuardDefinition, StreamStepDefinition)
_Definition = WorkflowDefinition | StepDefinition | GuardDefinition | StreamStepDefinition


class Registry:
    """Names to definitions, in layers: the newest layer is written, all are read, newest first."""

    def __init__(self) -> None:
        self._workflows: list[dict[str, WorkflowDefinition]] = [{}]
        self._steps: list[dict[str, StepDefinition]] = [{}]
        self._guards: list[dict[str, GuardDefinition]] = [{}]
        self._stream_steps: list[dict[str, StreamStepDefinition]] = [{}]

    def add_workflow(self, definition: WorkflowDefinition) -> None:
        """Register. Raises `DefinitionError` if the name is taken."""
        _refuse_taken("workflow", definition, self._workflows[-1].get(definition.name))
        self._workflows[-1][definition.name] = definition

    def add_step(self, definition: StepDefinition) -> None:
        """Register. Raises `DefinitionError` if the name is taken."""
        _refuse_taken("step", definition, self._steps[-1].get(definition.name))
        self._steps[-1][definition.name] = definition

    def add_guard(self, definition: GuardDefinition) -> None:
        """Register. Raises `DefinitionError` if the name is taken."""
        _refuse_taken("step_guard", definition, self._guards[-1].get(definition.name))
        self._guards[-1][definition.name] = definition

    def add_stream_step(self, definition: StreamStepDefinition) -> None:
        """Register. Raises `DefinitionError` if its stream has one of this name."""
        known = self._stream_steps[-1].get(definition.full_name)
        _refuse_taken("stream_step", definition, known)
        self._stream_steps[-1][definition.full_name] = definition

    def stream_step(self, full_name: str) -> StreamStepDefinition | None:
        """The stream step of this name, that of its stream before it."""
        return self._find(self._stream_steps, full_name)

    def stream_steps(self, stream: str | None = None) -> Mapping[str, StreamStepDefinition]:
        """The steps of a stream by name; without one all of them, by full name."""
        found = {name: each for layer in self._stream_steps for name, each in layer.items()}
        if stream is None:
            return found
        return {each.name: each for _, each in sorted(found.items()) if each.stream == stream}

    def runnable(self) -> list[str]:
        """What runs name as their workflow that can be worked on with what is registered."""
        return [*self.workflows(), *self.stream_steps()]

    def workflow(self, name: str) -> WorkflowDefinition | None:
        """The workflow of this name."""
        return self._find(self._workflows, name)

    def step(self, name: str) -> StepDefinition | None:
        """The step of this name."""
        return self._find(self._steps, name)

    def guard(self, name: str) -> GuardDefinition | None:
        """The guard of this name."""
        return self._find(self._guards, name)

    def workflows(self) -> Mapping[str, WorkflowDefinition]:
        """All workflows by name."""
        return {name: found for layer in self._workflows for name, found in layer.items()}

    def steps(self) -> Mapping[str, StepDefinition]:
        """All steps by name."""
        return {name: found for layer in self._steps for name, found in layer.items()}

    @contextmanager
    def isolated(self, *, keep_modules: bool = False) -> Iterator[None]:
        """A layer of its own for what is registered inside; gone afterwards.

        It hides what has the same name outside, so that a test is free in its names. With
        `keep_modules` only what functions defined is gone: a module imported inside stays imported.
        """
        self._workflows.append({})
        self._steps.append({})
        self._guards.append({})
        self._stream_steps.append({})
        try:
            yield
        finally:
            workflows, steps = self._workflows.pop(), self._steps.pop()
            guards, stream_steps = self._guards.pop(), self._stream_steps.pop()
            if keep_modules:
                self._workflows[-1].update(_module_level(workflows))
                self._steps[-1].update(_module_level(steps))
                self._guards[-1].update(_module_level(guards))
                self._stream_steps[-1].update(_module_level(stream_steps))

    @staticmethod
    def _find(layers: list[dict[str, D]], name: str) -> D | None:
        for layer in reversed(layers):
            if name in layer:
                return layer[name]
        return None


def _module_level(layer: dict[str, D]) -> dict[str, D]:
    return {name: found for name, found in layer.items() if "<locals>" not in _place(found)[1]}


def _refuse_taken(
    kind: str,
    new: _Definition,
    old: _Definition | None,
) -> None:
    if old is None or (_place(old) == _place(new) and not _side_by_side(old, new)):
        return
    raise DefinitionError(
        f"{kind} {new.name!r} is defined twice: in {_shown(old)} and in {_shown(new)}; "
        f"give one of them another name with @{kind}(name=...)"
    )


def _place(definition: _Definition) -> tuple[str, str]:
    code = _code(definition)
    name = getattr(definition.function, "__qualname__", definition.name)
    return (code.co_filename if code else "an unknown file", name)


def _shown(definition: _Definition) -> str:
    code = _code(definition)
    return f"{code.co_filename}, line {code.co_firstlineno}" if code else "an unknown file"


def _code(definition: _Definition) -> CodeType | None:
    code = getattr(definition.function, "__code__", None)
    return code if isinstance(code, CodeType) else None


def _side_by_side(old: _Definition, new: _Definition) -> bool:
    """Whether both stand in the code that is running: then nothing was reloaded."""
    before, after = _code(old), _code(new)
    if before is None or after is None or before is after:
        return False
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        held = {id(constant) for constant in frame.f_code.co_consts}
        if id(after) in held:
            return id(before) in held
        frame = frame.f_back
    return False


#: The registry that the decorators write to and workers read from.
registry = Registry()
