"""What the API logs of a request: its route, its outcome, its run. No body, no token, no address.

Messages of unexpected errors may quote values, so their types and places are logged, not their
texts.
"""

from __future__ import annotations

import logging
import traceback
from pathlib import PurePath
from typing import Any

from stepwell.api.problems import Refusal
from stepwell.engine.ports import TransientError

_LOG = logging.getLogger("stepwell.api")
_FRAMES = 12


def quieten_powertools() -> None:
    """Keep Powertools from logging path parameters, which hold tokens, at level DEBUG."""
    logging.getLogger("aws_lambda_powertools.event_handler").setLevel(logging.INFO)


def record(facts: dict[str, Any], *, refusal: Refusal | None, error: Exception | None) -> None:
    """Log the outcome of one request."""
    facts = {name: value for name, value in facts.items() if value is not None}
    if refusal is None:
        _LOG.info("request", extra=facts)
        return
    facts = {**facts, "code": refusal.code}
    if refusal.kind.status < 500 or error is None:
        _LOG.info("request refused", extra=facts)
    elif isinstance(error, TransientError):
        # Adapters word these, from what AWS or the disk said.
        _LOG.warning("request put off", extra={**facts, "reason": str(error)})
    else:
        _LOG.error("request failed", extra={**facts, **_described(error)})


def _described(error: BaseException) -> dict[str, Any]:
    """An error without its text: types along its causes, and where it came from."""
    kinds: list[str] = []
    link: BaseException | None = error
    while link is not None and len(kinds) < _FRAMES:
        kinds.append(_name(link))
        link = link.__cause__ or link.__context__
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
    where = [f"{PurePath(each.filename).name}:{each.lineno} {each.name}" for each in frames]
    return {"error": kinds, "where": where}


def _name(error: BaseException) -> str:
    # botocore's own code, such as AccessDeniedException, says what its class does not.
    response = getattr(error, "response", None)
    code = response.get("Error", {}).get("Code") if isinstance(response, dict) else None
    return type(error).__name__ + (f" ({code})" if code else "")
