"""The options of steps, checked: those of a declaration, and those of single calls."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

from stepwell.authoring.registry import registry
from stepwell.core.definitions import Colour, Dispatch, StepCommit, StepDefinition
from stepwell.core.durations import to_millis
from stepwell.core.ids import check_key
from stepwell.core.overrides import overrides
from stepwell.core.records import Millis
from stepwell.core.retry import RetryPolicy
from stepwell.errors import DefinitionError, DurationLike

_DEFAULT_RETRY = RetryPolicy()
#: A step that may take longer than this has a function of its own, so that turns stay short.
_LONGEST_INLINE: Millis = 60_000


def check_semantics(
    owner: str, *, at_most_once: bool, commit: StepCommit, dispatch: Dispatch
) -> None:
    """Raises `DefinitionError` for a bad way to commit, or one that contradicts another option."""
    if commit not in get_args(StepCommit):
        raise DefinitionError(f'{owner}: commit is "sync" or "lazy", not {commit!r}')
    if commit == "lazy" and (at_most_once or dispatch == "worker"):
        other = "at_most_once" if at_most_once else "dispatch"
        raise DefinitionError(
            f'{owner}: commit="lazy" lets a crash run the step again, which {other} is there to '
            "avoid; leave one of the two out"
        )


def with_options(
    declared: StepDefinition,
    *,
    key: str | None,
    timeout: DurationLike | None,
    retry: RetryPolicy | None,
    dispatch: Dispatch | None,
) -> StepDefinition:
    """A step with some options changed; `key` is only checked. Raises `DefinitionError`."""
    owner = f"step {declared.name!r}"
    if key is not None:
        check_key("step", key)
    limit = declared.timeout if timeout is None else checked_timeout(owner, timeout)
    policy = declared.retry if retry is None else checked_retry(owner, retry)
    where = declared.dispatch
    if dispatch is not None or (limit != declared.timeout and where == "inline"):
        where = checked_dispatch(owner, dispatch, limit)
    if where == "worker":
        _refuse_other_errors(owner, declared.name, policy)
    check_semantics(
        owner, at_most_once=declared.at_most_once, commit=declared.commit, dispatch=where
    )
    changed = limit != declared.timeout or policy != declared.retry
    return replace(
        declared,
        timeout=limit,
        retry=policy,
        dispatch=where,
        overrides=overrides(limit, policy) if changed else declared.overrides,
    )


def _refuse_other_errors(owner: str, name: str, policy: RetryPolicy) -> None:
    # Whoever makes the attempt has the declaration, and of the call only what data can say.
    declared = registry.step(name)
    if declared is None:
        return
    told = (policy.retry_on, policy.give_up_on)
    if told != (declared.retry.retry_on, declared.retry.give_up_on):
        raise DefinitionError(
            f"{owner}: retry_on and give_up_on of a dispatched step belong to its declaration; "
            "leave them out here, or change them there"
        )


def checked_retry(owner: str, retry: RetryPolicy | None) -> RetryPolicy:
    """The policy, or the default one. Raises `DefinitionError`."""
    if retry is None:
        return _DEFAULT_RETRY
    if not isinstance(retry, RetryPolicy):
        raise DefinitionError(
            f"{owner}: retry takes a RetryPolicy, such as RetryPolicy(max_attempts=3), not {retry!r}"
        )
    return retry


def checked_timeout(owner: str, timeout: DurationLike | None) -> Millis | None:
    """A timeout in ms, None for none. Raises `DefinitionError`."""
    if timeout is None:
        return None
    try:
        millis = to_millis(timeout)
    except ValueError as error:
        raise DefinitionError(f"{owner}: timeout: {error}") from None
    if millis <= 0:
        raise DefinitionError(f"{owner}: timeout must be above zero, not {timeout!r}")
    return millis


def checked_dispatch(owner: str, dispatch: Dispatch | None, timeout: Millis | None) -> Dispatch:
    """Where a step runs: as chosen, else by its timeout. Raises `DefinitionError`."""
    if dispatch is None:
        return "inline" if timeout is None or timeout <= _LONGEST_INLINE else "worker"
    if dispatch not in ("inline", "worker"):
        raise DefinitionError(f'{owner}: dispatch is "inline" or "worker", not {dispatch!r}')
    return dispatch


def colour_of(owner: str, function: Callable[..., Any]) -> Colour:
    """How a function is called. Raises `DefinitionError` for what cannot be recorded."""
    if not callable(function) or isinstance(function, type):
        raise DefinitionError(f"{owner}: decorate a function, not {function!r}")
    if next(iter(inspect.signature(function).parameters), "") in ("self", "cls"):
        raise DefinitionError(
            f"{owner}: a method cannot be recorded, since its object is not; "
            "decorate a function and pass what it needs"
        )
    if inspect.isasyncgenfunction(function):
        return "stream"
    if inspect.isgeneratorfunction(function):
        raise DefinitionError(f"{owner}: a generator cannot be recorded; use async def with yield")
    return "async" if inspect.iscoroutinefunction(function) else "sync"
