"""What goes wrong, as the API says it: one code for each thing that a caller would do differently.

Routes raise `Refusal`, or let errors of the client pass; everything becomes a problem document by
RFC 9457. What is said to the caller names the caller's own values; none of it is logged.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aws_lambda_powertools.event_handler.openapi.exceptions import RequestValidationError

from stepwell.engine.ports import TransientError
from stepwell.errors import (
    EntryConflict,
    HookAlreadyDecided,
    HookExpired,
    HookNotFound,
    IdempotencyConflict,
    InputRejected,
    InvalidToken,
    PayloadError,
    PayloadRejected,
    PayloadTooLarge,
    RunEnded,
    RunNotEnded,
    RunNotFound,
    SignalNotParked,
    SignalRejected,
    StreamEnded,
    SubscriptionNotFound,
    WorkflowNotFound,
)

MEDIA_TYPE = "application/problem+json"
#: Bytes of a request's body. Lambda takes six megabytes at most, headers and escapes included.
BODY_LIMIT = 1_048_576
#: Where the codes are explained; each has its heading there.
_DOCS = "docs/http-api.md"
_RETRY_AFTER = "2"
_MOST_FLAWS = 50
_LONGEST_TEXT = 500


@dataclass(frozen=True, slots=True)
class Kind:
    """What is the same for all problems of one code."""

    status: int
    title: str


KINDS: Mapping[str, Kind] = {
    "bad_cursor": Kind(400, "The cursor is none of this list"),
    "bad_body": Kind(400, "The body cannot be read"),
    "not_found": Kind(404, "There is nothing at this address"),
    "workflow_not_found": Kind(404, "No such workflow is published"),
    "run_not_found": Kind(404, "There is no such run"),
    "hook_not_found": Kind(404, "There is no such hook"),
    "method_not_allowed": Kind(405, "This address does not take this method"),
    "subscription_not_found": Kind(404, "The stream run has no such step"),
    "signal_not_parked": Kind(404, "No signal of this number is parked"),
    "stream_ended": Kind(409, "The stream run has ended"),
    "hook_already_decided": Kind(409, "The hook was answered otherwise before"),
    "run_ended": Kind(409, "The run has already ended"),
    "entry_conflict": Kind(409, "The inbox has another entry under this id"),
    "run_not_ended": Kind(409, "The run has not ended yet"),
    "hook_expired": Kind(410, "The answer came too late"),
    "body_too_large": Kind(413, "The body is too large"),
    "value_too_large": Kind(413, "A value is too large to be kept"),
    "response_too_large": Kind(413, "What was asked for does not fit one response"),
    "unsupported_media_type": Kind(415, "The body is of a kind that is not read here"),
    "invalid_parameter": Kind(422, "A parameter is not as it has to be"),
    "invalid_body": Kind(422, "The body is not as it has to be"),
    "input_rejected": Kind(422, "The input does not fit the workflow"),
    "signal_rejected": Kind(422, "The payload does not fit a step of the stream"),
    "payload_rejected": Kind(422, "The answer does not fit what was asked"),
    "idempotency_conflict": Kind(422, "The idempotency key was used with another input"),
    "internal_error": Kind(500, "Something is wrong here, not with the request"),
    "unavailable": Kind(503, "Not possible at this moment"),
}


class Refusal(Exception):
    """A request that ends with a problem. `members` are those beside the standard ones."""

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        **members: Any,
    ) -> None:
        super().__init__(code)
        self.code = code
        self.kind = KINDS[code]
        self.detail = detail
        self.headers = dict(headers or {})
        self.members = members
        if "errors" in members:
            self.members["errors"] = shortened(members["errors"])

    def document(self, *, instance: str | None, request_id: str | None) -> dict[str, Any]:
        """The problem document."""
        shown = {
            "type": f"{_DOCS}#{self.code}",
            "title": self.kind.title,
            "status": self.kind.status,
            "detail": self.detail,
            "instance": instance,
            "code": self.code,
            "request_id": request_id,
            **self.members,
        }
        return {name: value for name, value in shown.items() if value not in (None, [])}


def shortened(flaws: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """Flaws as they are told: not all of many, and none that quotes a large value in full."""
    return [
        {name: text[:_LONGEST_TEXT] for name, text in each.items()} for each in flaws[:_MOST_FLAWS]
    ]


def refusal_of(error: Exception) -> Refusal:
    """What an error means to the caller."""
    if isinstance(error, Refusal):
        return error
    for kind, refuse in _REFUSALS:
        if isinstance(error, kind):
            return refuse(error)
    return Refusal("internal_error", "The request could not be worked off. Quote its request id.")


def flaw(pointer: str, message: str) -> dict[str, str]:
    """One thing that is wrong with a body: where, by JSON pointer, and what."""
    return {"pointer": pointer, "message": message}


def pointer(path: Sequence[Any]) -> str:
    """The JSON pointer of a path."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


def _parameters(error: RequestValidationError) -> Refusal:
    errors = error.errors()
    if any(each["loc"][0] == "path" for each in errors):
        # A name that nothing can have is a name that nothing has.
        return Refusal("not_found", "Nothing can have this address.")
    shown = [{"parameter": str(each["loc"][1]), "message": each["msg"]} for each in errors]
    return Refusal("invalid_parameter", "Correct the parameters and ask again.", errors=shown)


def _too_large(error: PayloadTooLarge) -> Refusal:
    detail = f"The value has {error.size:,} bytes, the limit is {error.limit:,}: pass a reference."
    return Refusal("value_too_large", detail, size=error.size, limit=error.limit)


def _unfit(error: PayloadError) -> Refusal:
    errors = [flaw("", f"value at {error.path}: {error.reason}")]
    return Refusal("invalid_body", "The body holds a value that cannot be kept.", errors=errors)


def _rejected(code: str, detail: str) -> Callable[[Any], Refusal]:
    return lambda error: Refusal(code, detail, errors=error.errors)


def _ended(error: RunEnded) -> Refusal:
    detail = f"It ended as {error.status}; it takes no more input."
    return Refusal("run_ended", detail, run_id=error.run_id, run_status=error.status)


def _no_hook(_: Exception) -> Refusal:
    # The same for a forged token and a deleted hook: who asks learns nothing of either.
    return Refusal("hook_not_found", "This link leads to no hook.")


_REFUSALS: tuple[tuple[type[Exception], Callable[[Any], Refusal]], ...] = (
    (RequestValidationError, _parameters),
    (
        WorkflowNotFound,
        lambda e: Refusal("workflow_not_found", f"No workflow {e.workflow!r} is published."),
    ),
    (
        RunNotEnded,
        lambda e: Refusal(
            "run_not_ended", "Cancel it first, and wait for its end.", run_id=e.run_id
        ),
    ),
    (RunNotFound, lambda e: Refusal("run_not_found", f"There is no run {e.run_id!r}.")),
    (RunEnded, _ended),
    (
        EntryConflict,
        lambda e: Refusal("entry_conflict", "Use another id, or leave it out.", run_id=e.run_id),
    ),
    (InvalidToken, _no_hook),
    (HookNotFound, _no_hook),
    (
        HookAlreadyDecided,
        lambda _: Refusal("hook_already_decided", "Another answer was taken first; it stands."),
    ),
    (
        HookExpired,
        lambda _: Refusal("hook_expired", "The hook's time has passed, or nobody waits any more."),
    ),
    (
        SignalRejected,
        lambda e: Refusal(
            "signal_rejected",
            f"Step {e.step!r} takes {e.signal_type!r} otherwise: correct the payload; nothing was "
            "sent.",
            errors=e.errors,
        ),
    ),
    (
        StreamEnded,
        lambda e: Refusal("stream_ended", f"Stream run {e.stream_run!r} takes no more signals."),
    ),
    (
        SignalNotParked,
        lambda _: Refusal("signal_not_parked", "It was mended before, or was never parked."),
    ),
    (
        SubscriptionNotFound,
        lambda e: Refusal("subscription_not_found", f"No step {e.step!r} has subscribed."),
    ),
    (InputRejected, _rejected("input_rejected", "Correct the input and start again.")),
    (
        PayloadRejected,
        _rejected("payload_rejected", "The hook is still open: correct the answer and send again."),
    ),
    (
        IdempotencyConflict,
        lambda e: Refusal(
            "idempotency_conflict",
            "Use another key, or the input that this key was first used with.",
            run_id=e.run_id,
        ),
    ),
    (PayloadTooLarge, _too_large),
    (PayloadError, _unfit),
    (
        TransientError,
        lambda _: Refusal(
            "unavailable",
            "Nothing is lost; send the request again.",
            headers={"Retry-After": _RETRY_AFTER},
        ),
    ),
)


def problem_body(refusal: Refusal, *, instance: str | None, request_id: str | None) -> str:
    """The problem document as JSON text."""
    document = refusal.document(instance=instance, request_id=request_id)
    return json.dumps(document, separators=(",", ":"))
