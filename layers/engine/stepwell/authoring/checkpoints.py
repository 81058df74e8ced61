"""Checkpoints: what a step keeps for its next entry or attempt.

One per step, the last one saved stands. It survives retry, suspension and the death of the
process, and is dead once the step has its outcome.
"""

from __future__ import annotations

from typing import Any

from stepwell.authoring.context import STEP, StepContext, coloured
from stepwell.core.payload import Codec, codec, json_codec
from stepwell.errors import UsageError


def load_step_checkpoint(annotation: Any = Any) -> Any:
    """The checkpoint of the current step, None if there is none; await it in an `async` step.

    `annotation` is the type it comes back as, by default plain JSON. Raises `UsageError` outside a
    step, `PayloadError` if what is stored does not fit the type.
    """
    step = _here("load_step_checkpoint")
    return coloured(step, step.load_checkpoint(annotation))


def save_step_checkpoint(data: Any, annotation: Any = None) -> Any:
    """Save the checkpoint of the current step; durable when it returns.

    Models, dataclasses and enums are carried by their own type, anything else as plain JSON;
    `annotation` states another type. Raises `PayloadError` on a value that cannot be carried,
    `UsageError` outside a step.
    """
    step = _here("save_step_checkpoint")
    return coloured(step, step.save_checkpoint(data, annotation))


def delete_step_checkpoint() -> Any:
    """Do without the checkpoint from here on. It takes effect when the step completes.

    A crash before that finds the checkpoint still there. Without one, nothing happens.
    """
    step = _here("delete_step_checkpoint")
    return coloured(step, step.delete_checkpoint())


_PLAIN = (type(None), bool, int, float, str, list, dict, tuple)


def checkpoint_type(data: Any, annotation: Any) -> Any:
    """The type by which data is carried: the stated one, its own, or plain JSON."""
    if annotation is not None:
        return annotation
    return Any if type(data) in _PLAIN else type(data)


def value_codec(data: Any, owner: str) -> Codec:
    """The codec by which a value is carried whose type nobody states."""
    kind = checkpoint_type(data, None)
    return json_codec(owner) if kind is Any else codec(kind, owner)


def _here(what: str) -> StepContext:
    step = STEP.get()
    if step is None:
        raise UsageError(f"{what}: there is no step of a run here; checkpoints belong to steps")
    return step
