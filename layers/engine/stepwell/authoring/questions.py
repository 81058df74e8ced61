"""`ask`: a question to a person, with the answer as a value."""

from __future__ import annotations

from typing import Any

from stepwell.authoring.context import RUN, STEP, coloured
from stepwell.authoring.hooks import hook_definition
from stepwell.core.ids import check_note
from stepwell.errors import DurationLike, UsageError

#: The name of the hooks that questions are.
_NAME = "ask"


def ask(
    question: str,
    *,
    key: str | None = None,
    schema: type[Any] | None = None,
    timeout: DurationLike | None = None,
) -> Any:
    """Ask a question in a workflow or a step, and return the answer; await it in `async` code.

    It is a hook that shows its question: whoever holds its token answers it, once. An answer that
    does not fit `schema` (a pydantic model or any annotation; without one any JSON will do) is
    refused and leaves the question open. In a step the entry ends here while there is no answer,
    and the step is entered again from its top when it comes; see `step_hook`.

    Questions count in the order of asking, in their scope or from the top of the step; `key` gives
    one an identity of its own. Raises `HookTimeout` when `timeout` has passed without an answer,
    `UsageError` outside a run.
    """
    if not isinstance(question, str) or not question:
        raise UsageError(f"ask: give the question as text, not {question!r}")
    check_note("ask: the question", question)
    definition = hook_definition(
        _NAME, key=key, timeout=timeout, payload_schema=schema, question=question
    )
    context = STEP.get() or RUN.get()
    if context is None:
        raise UsageError("ask: there is no run here, so nobody would answer")
    return coloured(context, context.hook(definition, key))
