"""Guards: functions that are asked before a step runs, or after it, and may have their way.

A guard gets what is about to be done as plain JSON, and answers with its power over it:

| answer | what happens |
|---|---|
| `{"power": "observe"}` | nothing; on to the next guard |
| `{"power": "mutate", "args": [...], "kwargs": {...}}` | the body gets these, one may be absent |
| `{"power": "block", "reason": "..."}` | the step fails with `StepBlocked` |
| `{"power": "replace", "result": ...}` | this is the result; body and later guards are skipped |
| `{"power": "suspend", "reason": "..."}` | the run waits for input, as by `raise Suspend("...")` |

After a step a guard may observe, replace and block. A run keeps the names of its guards, never
their code: what a name stands for is found among those that a process has declared.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, overload

from stepwell.authoring.registry import registry
from stepwell.core.definitions import GuardDefinition
from stepwell.core.ids import check_name
from stepwell.core.records import GuardChange, Guards
from stepwell.errors import DefinitionError, UsageError

#: What a guard is: a function of the payload, plain or `async`, or anything called like one.
GuardFunction = Callable[[dict[str, Any]], Any]
#: One guard, or several in their order; a function is one of this process alone.
Chain = GuardFunction | Sequence[GuardFunction]
#: What the names of functions begin with that only their process knows. No declared name does.
_LOCAL = "local:"
#: Functions that this process alone knows, by the name that its runs keep.
_functions: dict[str, GuardDefinition] = {}


class StepGuard:
    """A declared guard, known by its name wherever its module is imported."""

    def __init__(self, definition: GuardDefinition) -> None:
        self.definition = definition
        functools.update_wrapper(self, definition.function, updated=())

    def __call__(self, payload: dict[str, Any]) -> Any:
        """Call the function as it is."""
        return self.definition.function(payload)

    def __repr__(self) -> str:
        return f"<step guard {self.definition.name!r}>"


@overload
def step_guard(function: GuardFunction, /) -> StepGuard: ...
@overload
def step_guard(*, name: str | None = None) -> Callable[[GuardFunction], StepGuard]: ...
def step_guard(function: GuardFunction | None = None, /, *, name: str | None = None) -> Any:
    """Declare a guard of steps, so that every process that imports it finds it by its name.

    `name` is what runs keep, by default the function's own. Raises `DefinitionError` on a bad or
    taken name.
    """
    if function is None:
        return functools.partial(_declare, name=name)
    return _declare(function, name=name)


def _declare(function: GuardFunction, *, name: str | None) -> StepGuard:
    if not callable(function) or isinstance(function, type):
        raise DefinitionError(f"step_guard takes a function of the payload, not {function!r}")
    given = check_name("guard", name or str(getattr(function, "__name__", "")))
    definition = GuardDefinition(name=given, function=function)
    registry.add_guard(definition)
    return StepGuard(definition)


def declared(
    before: Chain | None, after: Chain | None, known: Guards | None = None
) -> Guards | None:
    """The guards of a run that any process may go on with. `UsageError` on what has no name.

    A chain that is not given is that of `known`.
    """
    kept = known or Guards()
    return _guards(
        kept.before if before is None else _names(before, None),
        kept.after if after is None else _names(after, None),
    )


def guard_change(
    before: Chain | None, after: Chain | None, nonce: str | None
) -> GuardChange | None:
    """What a call says of the guards of a run: a chain that is not given stays. None: nothing.

    Without a `nonce`, any process may go on with the run.
    """
    if before is None and after is None:
        return None
    guards = _guards(_names(before or (), nonce), _names(after or (), nonce))
    keep: Literal["before", "after"] | None = None
    if before is None or after is None:
        keep = "before" if before is None else "after"
    return GuardChange(guards=guards, keep=keep)


def local_guard(name: str) -> GuardDefinition | None:
    """What a name of this process stands for."""
    return _functions.get(name)


def is_local(name: str) -> bool:
    """Whether a name is of one process only."""
    return name.startswith(_LOCAL)


def shown_name(name: str) -> str:
    """A guard's name as its author knows it."""
    return name.removeprefix(_LOCAL).partition("#")[0] if is_local(name) else name


def forget(guards: Guards | None) -> None:
    """Let go of the functions behind names of this process."""
    if guards is not None:
        for name in (*guards.before, *guards.after):
            _functions.pop(name, None)


def _guards(before: tuple[str, ...], after: tuple[str, ...]) -> Guards | None:
    return Guards(before=before, after=after) if before or after else None


def _names(chain: Chain, nonce: str | None) -> tuple[str, ...]:
    members: Sequence[GuardFunction] = (chain,) if callable(chain) else tuple(chain)
    return tuple(_name(each, nonce, place) for place, each in enumerate(members))


def _name(guard: GuardFunction, nonce: str | None, place: int) -> str:
    if isinstance(guard, StepGuard):
        return guard.definition.name
    if not callable(guard) or isinstance(guard, type):
        raise TypeError(f"a guard is a function of the payload, not {guard!r}")
    if nonce is None:
        shown = getattr(guard, "__qualname__", None) or guard
        raise UsageError(
            f"guard {shown}: only this process knows it, and another one may go on with the run; "
            "declare it with @step_guard"
        )
    named = getattr(guard, "__qualname__", None) or type(guard).__name__
    name = f"{_LOCAL}{named}#{nonce}-{place}"
    _functions[name] = GuardDefinition(name=name, function=guard)
    return name


def answered(answer: object) -> tuple[str, Mapping[str, Any]]:
    """The power that an answer names, and the answer. Raises `ValueError` on what is none."""
    if not isinstance(answer, Mapping):
        raise ValueError(f"it answered {answer!r}: an answer is an object with a power")
    power = answer.get("power")
    if power not in ("observe", "mutate", "block", "replace", "suspend"):
        raise ValueError(f"it answered with the power {power!r}, which there is not")
    reason = answer.get("reason")
    if power in ("block", "suspend") and not (isinstance(reason, str) and reason):
        raise ValueError(f"its answer to {power} has no reason")
    if power == "replace" and "result" not in answer:
        raise ValueError("its answer to replace has no result")
    return str(power), answer
