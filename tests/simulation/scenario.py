"""What a scenario is: one run, and what the outside does while it goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stepwell.authoring.decorators import Workflow
from stepwell.client import RunHandle
from stepwell.testing import Environment


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A workflow, its input, and what happens to its run from outside after its first turns."""

    name: str
    workflow: Workflow[..., Any]
    args: tuple[Any, ...] = ()
    script: Callable[[Environment, RunHandle[Any]], None] = lambda env, run: None
    #: Ids of the steps whose streamed output is compared.
    streams: tuple[str, ...] = ()
    #: Whether what happens depends on when: then a drive that loses minutes cannot be compared.
    timed: bool = False
    #: Whether what happens depends on the run's seed.
    drawn: bool = False


def answer(env: Environment, run: RunHandle[Any], name: str, payload: Any) -> None:
    """Answer the open hook of this name."""
    [found] = [hook for hook in env.hooks(run) if hook.name == name]
    env.resume_hook(found.token, payload)
