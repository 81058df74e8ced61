"""The API as a Powertools application: routes, problems, records of requests, OpenAPI."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Awaitable, Callable
from functools import cache
from http import HTTPStatus
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from aws_lambda_powertools.event_handler import (
    APIGatewayHttpResolver,
    ApiGatewayResolver,
    Response,
)
from aws_lambda_powertools.event_handler.exceptions import NotFoundError
from aws_lambda_powertools.event_handler.openapi.models import APIKey, APIKeyIn, HTTPBearer

from stepwell.api.about import About
from stepwell.api.endpoints import COMMON_HEADERS, ClientProvider, Endpoint, request_id
from stepwell.api.hooks import TOKEN_RULE, Hooks
from stepwell.api.inbox import Inboxes
from stepwell.api.log import quieten_powertools, record
from stepwell.api.pages import HEADERS, HTML, prefers_html, problem_page
from stepwell.api.problems import BODY_LIMIT, MEDIA_TYPE, Refusal, problem_body, refusal_of
from stepwell.api.runs import Runs
from stepwell.api.streams import Streams
from stepwell.api.workflows import Workflows

_SECURITY: list[dict[str, list[str]]] = [{"iam": []}, {"jwt": []}]


def http_api(client: ClientProvider, *, body_limit: int = BODY_LIMIT) -> APIGatewayHttpResolver:
    """The API for Lambda behind an HTTP API: `await app.resolve_async(event, context)`.

    Its routes are coroutines, so `app.resolve` does not serve them.
    """
    # Said here, for the environment could switch on that events are printed, tokens and all.
    app = APIGatewayHttpResolver(enable_validation=True, debug=False)
    add_routes(app, client, body_limit=body_limit)
    return app


def add_routes(
    app: ApiGatewayResolver, client: ClientProvider, *, body_limit: int = BODY_LIMIT
) -> None:
    """Put all routes on a resolver that validates; any of Powertools', such as the local one."""
    quieten_powertools()
    endpoints = (
        *Runs(client, body_limit).endpoints(),
        *Inboxes(client, body_limit).endpoints(),
        *Streams(client, body_limit).endpoints(),
        *Workflows(client).endpoints(),
        *Hooks(client, body_limit).endpoints(),
        *About(cache(lambda: _document(app))).endpoints(),
    )
    for each in endpoints:
        _add(app, each)
    _Answers(app, endpoints).install()


def _add(app: ApiGatewayResolver, endpoint: Endpoint) -> None:
    app.route(
        endpoint.rule,
        method=endpoint.method,
        summary=endpoint.summary,
        description=inspect.getdoc(endpoint.handle),
        responses=endpoint.documented(),
        tags=[endpoint.group],
        operation_id=endpoint.name,
        status_code=endpoint.status,
        security=None if endpoint.public else _SECURITY,
        openapi_extensions={"requestBody": endpoint.body} if endpoint.body else None,
        # What fits no model of ours is a mistake of ours.
        custom_response_validation_http_code=HTTPStatus.INTERNAL_SERVER_ERROR,
    )(endpoint.handle)


class _Answers:
    """What holds for all routes: unknown parameters, unknown addresses, problems, records."""

    def __init__(self, app: ApiGatewayResolver, endpoints: tuple[Endpoint, ...]) -> None:
        self._app = app
        self._endpoints = endpoints
        self._known = {(each.method, _template(each.rule)): each for each in endpoints}
        self._parameters = {each.name: each.parameters for each in endpoints}

    def install(self) -> None:
        # Powertools' type knows no coroutines here, its `resolve_async` awaits them.
        self._app.use(middlewares=[self._around])  # type: ignore[list-item]
        self._app.not_found(self._nothing_here)
        self._app.exception_handler(Exception)(self._failed)

    def _endpoint(self) -> Endpoint | None:
        request = self._app.request
        return self._known.get((request.method, request.route))

    async def _around(
        self,
        app: ApiGatewayResolver,
        next_middleware: Callable[[ApiGatewayResolver], Awaitable[Response[Any]]],
    ) -> Response[Any]:
        endpoint = self._endpoint()
        if endpoint is not None and not endpoint.public:
            self._check_parameters(endpoint)
        response = await next_middleware(app)
        if endpoint is not None:
            self._record(response.status_code, None, None)
        return response

    def _check_parameters(self, endpoint: Endpoint) -> None:
        # A filter that is spelt wrongly must not pass for none. Links may carry what mail programs
        # add to them.
        given = self._app.current_event.query_string_parameters
        flaws = [
            {"parameter": name, "message": "is not known here"}
            for name in given
            if name not in self._parameters[endpoint.name]
        ]
        if flaws:
            raise Refusal("invalid_parameter", "Leave out what is not known.", errors=flaws)

    def _nothing_here(self, _: NotFoundError) -> Response[Any]:
        path = self._app.current_event.path
        allowed = sorted(
            {each.method for each in self._endpoints if _pattern(each.rule).fullmatch(path)}
        )
        if self._app.current_event.http_method.upper() in allowed or not allowed:
            # Also an address with characters that Powertools takes for none of a parameter.
            raise Refusal("not_found", "There is no such route.")
        methods = ", ".join(allowed)
        raise Refusal("method_not_allowed", f"It takes {methods}.", headers={"Allow": methods})

    def _failed(self, error: Exception) -> Response[Any]:
        refusal = refusal_of(error)
        self._record(refusal.kind.status, refusal, error)
        event = self._app.current_event
        endpoint = self._endpoint()
        request = request_id(event)
        public = event.path.startswith("/hooks/")
        headers = {**COMMON_HEADERS, **(HEADERS if public else {}), **refusal.headers}
        if public and prefers_html(event.headers.get("accept") or ""):
            body, kind = problem_page(refusal, request), HTML
        else:
            # No address that holds a token, or might.
            named = endpoint is not None and endpoint.rule != TOKEN_RULE
            instance = event.path if named else None
            body, kind = problem_body(refusal, instance=instance, request_id=request), MEDIA_TYPE
        body = "" if event.http_method.upper() == "HEAD" else body
        return Response(refusal.kind.status, kind, body, headers=headers)

    def _record(self, status: int, refusal: Refusal | None, error: Exception | None) -> None:
        request = self._app.request
        endpoint = self._endpoint()
        facts = {
            "method": request.method,
            "route": None if endpoint is None else request.route,
            "status": status,
            "request_id": request_id(self._app.current_event),
            "run_id": request.context.get("run_id"),
        }
        record(facts, refusal=refusal, error=error)


def _template(rule: str) -> str:
    return re.sub(r"<(\w+)>", r"{\1}", rule)


@cache
def _pattern(rule: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"<\w+>", "[^/]+", re.escape(rule).replace(r"\<", "<")))


def _document(app: ApiGatewayResolver) -> str:
    text = app.get_openapi_json_schema(
        title="Stepwell",
        version=_version(),
        description="Durable runs: start, look at, cancel; hooks: look at, answer; streams: signal.",
        security_schemes={
            "iam": APIKey.model_validate(
                {
                    "name": "Authorization",
                    "in": APIKeyIn.header,
                    "description": "AWS Signature Version 4, for the service execute-api.",
                }
            ),
            "jwt": HTTPBearer(bearerFormat="JWT"),
        },
    )
    document = json.loads(text)
    # Powertools describes problems of its own, which no route answers with.
    for name in ("HTTPValidationError", "ResponseValidationError", "ValidationError"):
        document["components"]["schemas"].pop(name, None)
    return json.dumps(document, separators=(",", ":"))


def _version() -> str:
    try:
        return version("stepwell")
    except PackageNotFoundError:  # a layer may hold the package without its metadata
        return "unknown"
