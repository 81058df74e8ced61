"""Hooks: waiting for an answer from outside, in a workflow or in the middle of a step.

A hook's row exists before its token leaves; `on_created` is called with the token, and called
again with the same token if a process died before that was recorded. The first decision wins: one
answer, or the deadline.
"""

from __future__ import annotations

import functools
from collections.abc import Coroutine
from typing import Any, Final, Generic, Literal, TypeVar, get_args, overload

from stepwell.authoring.context import RUN, STEP, StepContext, coloured
from stepwell.core.answers import check_schema
from stepwell.core.definitions import HookDefinition, OnCreated, OnTimeout
from stepwell.core.durations import to_millis
from stepwell.core.ids import check_key, check_name
from stepwell.core.payload import Codec, codec
from stepwell.errors import DefinitionError, DurationLike, UsageError

M = TypeVar("M")


class HookTimeoutMark:
    """The type of `STEP_HOOK_TIMEOUT`; it has one value, which copies and pickles as itself."""

    _one: HookTimeoutMark | None = None

    def __new__(cls) -> HookTimeoutMark:
        """The one value."""
        if cls._one is None:
            cls._one = super().__new__(cls)
        return cls._one

    def __repr__(self) -> str:
        return "STEP_HOOK_TIMEOUT"

    def __bool__(self) -> bool:
        return False

    def __copy__(self) -> HookTimeoutMark:
        return self

    def __deepcopy__(self, memo: object) -> HookTimeoutMark:
        return self

    def __reduce__(self) -> str:
        return "STEP_HOOK_TIMEOUT"


#: What a hook with `on_timeout="return"` gives when its deadline passed. Compare with `is`. It is a
#: mark, not a value: a step or workflow that returns it fails.
STEP_HOOK_TIMEOUT: Final = HookTimeoutMark()


def hook(
    name: str,
    *,
    key: str | None = None,
    timeout: DurationLike | None = None,
    on_created: OnCreated | None = None,
    payload_schema: type[Any] | None = None,
    on_timeout: OnTimeout = "raise",
) -> Any:
    """Wait in a workflow for an answer from outside; await it, or call it in a `def` workflow.

    Returns the payload: by `payload_schema` (a pydantic model or any annotation) if given, else
    plain JSON. The payload is validated against its JSON schema before the answer is taken; what
    only the model's own validators refuse raises `PayloadError` here, when it has been taken.
    `on_created(token)` tells the outside; it is tried again if it raises, and if it fails for good
    the hook ends with `HookFailed`. `timeout` is a durable deadline from when the hook is made:
    `on_timeout="raise"` raises `HookTimeout`, `"return"` returns `STEP_HOOK_TIMEOUT`, `"wait"`
    goes on waiting and only shows the deadline. `key` gives the hook an identity of its own;
    without it, hooks count by name in their scope.

    Raises `UsageError` outside a workflow, `DefinitionError` on a bad option.
    """
    definition = hook_definition(
        name,
        key=key,
        timeout=timeout,
        on_created=on_created,
        payload_schema=payload_schema,
        on_timeout=on_timeout,
    )
    if STEP.get() is not None:
        raise UsageError(f"hook {name!r}: inside a step write step_hook(...)")
    run = RUN.get()
    if run is None:
        raise UsageError(f"hook {name!r}: there is no run here; start the workflow with a client")
    return coloured(run, run.hook(definition, key))


def step_hook(
    name: str,
    *,
    key: str | None = None,
    timeout: DurationLike | None = None,
    on_created: OnCreated | None = None,
    payload_schema: type[Any] | None = None,
    on_timeout: OnTimeout = "raise",
) -> Any:
    """Wait in the middle of a step for an answer from outside; await it in an `async` step.

    Without an answer yet the step is suspended: this raises through the body, and when the answer
    comes the step is entered again from the top, where the same call returns it. What lies before
    the call runs again; keep what must not in the step's checkpoint. Even a body that swallows
    the exception is suspended, and what it returns is dropped.

    Options are those of `hook`. If `on_created` raises, that raises here, and a retry of the step
    calls it again with the same token. Hooks count by name from the top of the step on every
    entry; a hook without `key` whose answer was taken before the checkpoint that this entry loaded
    was saved raises `AmbiguousHook`.

    Raises `UsageError` outside a step, `HookTimeout` past the deadline with `on_timeout="raise"`.
    """
    definition = hook_definition(
        name,
        key=key,
        timeout=timeout,
        on_created=on_created,
        payload_schema=payload_schema,
        on_timeout=on_timeout,
    )
    step = _step_here(f"step_hook {name!r}", "write hook(...) in a workflow")
    return coloured(step, step.hook(definition, key))


class TypedHook(Generic[M]):
    """A hook with a name and a payload type, to be waited for by calling it."""

    def __init__(self, name: str, payload_schema: type[M]) -> None:
        check_name("hook", name)
        self.name = name
        self.payload_schema = payload_schema

    @overload
    def __call__(
        self,
        *,
        on_timeout: Literal["return"],
        key: str | None = None,
        timeout: DurationLike | None = None,
        on_created: OnCreated | None = None,
    ) -> Coroutine[Any, Any, M | HookTimeoutMark]: ...
    @overload
    def __call__(
        self,
        *,
        on_timeout: Literal["raise", "wait"] = "raise",
        key: str | None = None,
        timeout: DurationLike | None = None,
        on_created: OnCreated | None = None,
    ) -> Coroutine[Any, Any, M]: ...
    def __call__(
        self,
        *,
        on_timeout: OnTimeout = "raise",
        key: str | None = None,
        timeout: DurationLike | None = None,
        on_created: OnCreated | None = None,
    ) -> Any:
        """Wait for the answer in a workflow, or in a step; options are those of `hook`.

        Typed for `async` code; in `def` code the call blocks and gives the answer itself.
        """
        wait = hook if STEP.get() is None else step_hook
        return wait(
            self.name,
            key=key,
            timeout=timeout,
            on_created=on_created,
            payload_schema=self.payload_schema,
            on_timeout=on_timeout,
        )

    def __repr__(self) -> str:
        return f"<hook {self.name!r}>"


def define_hook(name: str, payload_schema: type[M]) -> TypedHook[M]:
    """A hook whose answers are of one type. Raises `DefinitionError` on a bad name."""
    return TypedHook(name, payload_schema)


def hook_definition(
    name: str,
    *,
    key: str | None,
    timeout: DurationLike | None,
    payload_schema: type[Any] | None,
    on_created: OnCreated | None = None,
    on_timeout: OnTimeout = "raise",
    question: str | None = None,
) -> HookDefinition:
    """A hook as asked for. Raises `DefinitionError` on a bad option."""
    check_name("hook", name)
    if key is not None:
        check_key("hook", key)
    if on_timeout not in get_args(OnTimeout):
        raise DefinitionError(
            f'hook {name!r}: on_timeout is "raise", "return" or "wait", not {on_timeout!r}'
        )
    if on_created is not None and not callable(on_created):
        raise DefinitionError(f"hook {name!r}: on_created must be a function of the token")
    payload, schema = _payload(name, payload_schema)
    return HookDefinition(
        name=name,
        payload=payload,
        schema=schema,
        timeout=_timeout(name, timeout),
        on_created=on_created,
        on_timeout=on_timeout,
        question=question,
    )


def _payload(name: str, payload_schema: Any) -> tuple[Codec, str | None]:
    """How answers are carried, and their JSON schema if they have one."""
    try:
        return _compiled(name, payload_schema)
    except TypeError:  # an annotation need not be hashable
        return _compiled.__wrapped__(name, payload_schema)


# A hook is asked for again on every replay: its type is compiled once.
@functools.lru_cache(maxsize=256)
def _compiled(name: str, payload_schema: Any) -> tuple[Codec, str | None]:
    owner = f"hook {name!r}"
    if payload_schema is None:
        return codec(Any, owner), None
    payload = codec(payload_schema, owner)
    schema = payload.schema()
    check_schema(schema, owner)
    return payload, schema


def _timeout(name: str, timeout: DurationLike | None) -> int | None:
    if timeout is None:
        return None
    try:
        millis = to_millis(timeout)
    except ValueError as error:
        raise DefinitionError(f"hook {name!r}: timeout: {error}") from None
    if millis <= 0:
        raise DefinitionError(f"hook {name!r}: timeout must be above zero, not {timeout!r}")
    return millis


def _step_here(what: str, instead: str) -> StepContext:
    step = STEP.get()
    if step is None:
        raise UsageError(f"{what}: there is no step of a run here; {instead}")
    return step
