"""What one route is made of, and what routes have in common: the client, parameters, replies."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Protocol, TypeVar

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.openapi.params import Path, Query
from aws_lambda_powertools.event_handler.openapi.types import OpenAPIResponse, OpenAPIResponseHeader
from aws_lambda_powertools.utilities.data_classes.common import BaseProxyEvent
from pydantic import BaseModel

from stepwell.api.bodies import JSON
from stepwell.api.models import Problem
from stepwell.api.problems import KINDS, MEDIA_TYPE, Refusal
from stepwell.client import Client
from stepwell.engine.ports import Page


class ClientProvider(Protocol):
    """Gives the client of a request. Called for each, so it has to keep what is dear."""

    def __call__(self, token: str | None = None, /) -> Client:
        """The client; one that knows the key of this token, if there is such a key."""


T = TypeVar("T")

#: Bytes of a response as JSON in the JSON that Lambda hands on, which takes six megabytes.
_RESPONSE_LIMIT = 5_500_000
#: On every response: what is told here changes, and is nobody else's business.
COMMON_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}

#: Says that a request only repeats one that was carried out before.
REPLAYED = {"Idempotent-Replayed": "`true` when this only repeats what was done before."}
_PROBLEM_HEADERS = {503: {"Retry-After": "Seconds to wait before the request is sent again."}}

RunId = Annotated[str, Path(max_length=256, description="Id of a run.")]
Limit = Annotated[int, Query(ge=1, le=200, description="At most so many; fewer may come.")]
Cursor = Annotated[
    str | None, Query(max_length=4_096, description="From a page, for the one after it.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One route: how it is reached, what answers, and what the OpenAPI document says of it.

    `problems` are the codes in `problems.KINDS` that it may answer with, beside those of all
    routes.
    """

    method: str
    rule: str
    handle: Callable[..., Any]
    name: str
    summary: str
    group: str
    model: type[BaseModel] | None = None
    status: int = 200
    problems: tuple[str, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    responses: Mapping[int, OpenAPIResponse] = field(default_factory=dict)

    @property
    def public(self) -> bool:
        """Whether anybody may call it, without an identity."""
        return not self.rule.startswith(("/v1/", "/openapi"))

    @property
    def parameters(self) -> frozenset[str]:
        """The names of its query parameters."""
        signature = inspect.signature(self.handle, eval_str=True)
        return frozenset(
            name
            for name, each in signature.parameters.items()
            if any(isinstance(m, Query) for m in getattr(each.annotation, "__metadata__", ()))
        )

    def documented(self) -> dict[int, OpenAPIResponse]:
        """Its responses for the OpenAPI document, problems by status."""
        found: dict[int, OpenAPIResponse] = {}
        if self.model is not None:
            found[self.status] = {
                "description": (self.model.__doc__ or "").partition("\n")[0],
                "headers": header_docs(self.headers),
                "content": {JSON: {"model": self.model}},
            }
        codes: dict[int, list[str]] = {}
        for code in (*self.problems, "invalid_parameter", "internal_error", "unavailable"):
            codes.setdefault(KINDS[code].status, []).append(code)
        for status, each in sorted(codes.items()):
            found[status] = {
                "description": "; ".join(f"`{code}`: {KINDS[code].title}" for code in each),
                "headers": header_docs(_PROBLEM_HEADERS.get(status, {})),
                "content": {MEDIA_TYPE: {"model": Problem}},
            }
        return found | dict(self.responses)


def header_docs(headers: Mapping[str, str]) -> dict[str, OpenAPIResponseHeader]:
    """Headers of a response, for the OpenAPI document."""
    return {
        name: {"description": what, "schema": {"type": "string"}} for name, what in headers.items()
    }


def reply(
    body: Any, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response[Any]:
    """A JSON response, checked on its way out against the route's model."""
    return Response(status, JSON, body, headers={**COMMON_HEADERS, **(headers or {})})


def checked_size(body: dict[str, Any], advice: str) -> dict[str, Any]:
    """The body, if it fits a response. Raises `Refusal` with the advice otherwise."""
    size = _size(body)
    if size > _RESPONSE_LIMIT:
        detail = f"It has about {size:,} bytes, the limit is {_RESPONSE_LIMIT:,}: {advice}."
        raise Refusal("response_too_large", detail, size=size, limit=_RESPONSE_LIMIT)
    return body


def _size(body: Any) -> int:
    text = json.dumps(body, separators=(",", ":"))
    return len(text) + text.count('"') + text.count("\\")


async def page_of(
    fetch: Callable[[int], Awaitable[Page[T]]],
    shape: Callable[[T], Mapping[str, Any]],
    name: str,
    limit: int,
    cursor: str | None,
) -> dict[str, Any]:
    """A page as a body: as many items as fit a response. Raises `Refusal` on a bad cursor."""
    while True:
        try:
            page = await fetch(limit)
        except ValueError:
            if cursor is None:
                raise
            raise Refusal("bad_cursor", "Take the cursor as a page gave it.") from None
        body = {name: [shape(each) for each in page.items], "cursor": page.cursor}
        if limit == 1 or _size(body) <= _RESPONSE_LIMIT:
            return body
        limit = max(1, limit // 4)


def prefix(event: BaseProxyEvent) -> str:
    """What stands before the routes in the address, such as the name of a stage."""
    whole: str = event.get("rawPath") or event.path
    return whole.removesuffix(event.path)


def actor(event: BaseProxyEvent) -> str | None:
    """Who asks, as API Gateway has made sure of it: an ARN, or the subject of a token."""
    authorizer = (event.get("requestContext") or {}).get("authorizer") or {}
    iam = authorizer.get("iam") or {}
    claims = (authorizer.get("jwt") or {}).get("claims") or {}
    found = iam.get("userArn") or claims.get("sub")
    return str(found)[:1_000] if found else None


def request_id(event: BaseProxyEvent) -> str | None:
    """The id that API Gateway has given the request."""
    found: str | None = (event.get("requestContext") or {}).get("requestId")
    return found
