"""Hooks: the list of open ones for operators, and the public address behind each token.

Looking never decides: links are opened by mail scanners and previews. Only a POST does.
"""

from __future__ import annotations

from typing import Annotated, Any

from aws_lambda_powertools.event_handler import Request, Response
from aws_lambda_powertools.event_handler.openapi.params import Path, Query
from aws_lambda_powertools.utilities.data_classes.common import BaseProxyEvent

from stepwell.api.bodies import (
    FORM,
    JSON,
    media_type,
    parse_form,
    read_json,
    read_text,
    refuse_unless,
)
from stepwell.api.endpoints import (
    COMMON_HEADERS,
    REPLAYED,
    ClientProvider,
    Cursor,
    Endpoint,
    Limit,
    header_docs,
    page_of,
    reply,
)
from stepwell.api.forms import form_of
from stepwell.api.models import Answered, HookPage, HookView
from stepwell.api.pages import HEADERS, HTML, answered_page, hook_page, prefers_html
from stepwell.api.problems import Refusal, flaw, shortened
from stepwell.client import PendingHook, Resumed
from stepwell.core.records import HookRow
from stepwell.errors import PayloadRejected
from stepwell.shapes import Shape, hook_shape, hook_view, resumed_shape

#: Addresses that hold a secret: never logged, never repeated in an answer.
TOKEN_RULE = "/hooks/<token>"  # noqa: S105 - a route

Token = Annotated[str, Path(description="The token that the hook's `on_created` was given.")]

_PAGE: Any = {"text/html": {"schema": {"type": "string"}}}


class Hooks:
    """The routes of hooks."""

    def __init__(self, client: ClientProvider, body_limit: int) -> None:
        self._client = client
        self._body_limit = body_limit

    def endpoints(self) -> tuple[Endpoint, ...]:
        """The routes, for `add_routes` to add."""
        view: Any = {
            "description": "The hook, as a page or as JSON.",
            "content": {JSON: {"model": HookView}, **_PAGE},
        }
        return (
            Endpoint(
                method="GET",
                rule="/v1/hooks",
                handle=self.listing,
                name="listHooks",
                summary="List hooks that wait for an answer, oldest first",
                group="hooks",
                model=HookPage,
                problems=("bad_cursor",),
            ),
            Endpoint(
                method="GET",
                rule=TOKEN_RULE,
                handle=self.look,
                name="getHook",
                summary="Look at a hook; decides nothing",
                group="answers",
                problems=("hook_not_found",),
                responses={200: view},
            ),
            Endpoint(
                method="HEAD",
                rule=TOKEN_RULE,
                handle=self.peek,
                name="peekHook",
                summary="See whether a hook is there; decides nothing",
                group="answers",
                problems=("hook_not_found",),
                responses={200: {"description": "The hook is there.", "content": {}}},
            ),
            self._answering(),
        )

    def _answering(self) -> Endpoint:
        return Endpoint(
            method="POST",
            rule=TOKEN_RULE,
            handle=self.answer,
            name="answerHook",
            summary="Answer a hook; the first answer stands",
            group="answers",
            body={
                "required": True,
                "description": "What the hook's schema asks for, or the fields of its page's form.",
                "content": {JSON: {"schema": {}}, FORM: {"schema": {"type": "object"}}},
            },
            problems=(
                "hook_not_found",
                "hook_already_decided",
                "hook_expired",
                "payload_rejected",
                "bad_body",
                "body_too_large",
                "unsupported_media_type",
                "invalid_body",
                "value_too_large",
            ),
            responses={
                200: {
                    "description": "The answer was taken, now or before.",
                    "headers": header_docs(REPLAYED),
                    "content": {JSON: {"model": Answered}, **_PAGE},
                }
            },
        )

    async def listing(
        self,
        run_id: Annotated[
            str | None, Query(max_length=256, description="Of this run only.")
        ] = None,
        limit: Limit = 50,
        cursor: Cursor = None,
    ) -> Response[HookPage]:
        """Their tokens are not shown: those go to whom `on_created` sends them."""
        client = self._client()
        body = await page_of(
            lambda most: client.list_hooks(run_id=run_id, limit=most, cursor=cursor),
            _without_token,
            "hooks",
            limit,
            cursor,
        )
        return reply(body)

    async def look(self, request: Request, token: Token) -> Response[Any]:
        """A page with a form for those who ask for HTML, the hook as JSON for all others."""
        hook = await self._client(token).get_hook(token)
        request.context["run_id"] = hook.run_id
        if _wants_page(request.resolved_event):
            return _html(hook_page(hook, form_of(hook.schema)))
        return _json(HookView, hook_view(hook))

    async def peek(self, request: Request, token: Token) -> Response[Any]:
        """What GET answers, without its body."""
        response = await self.look(request, token)
        response.body = ""
        return response

    async def answer(self, request: Request, token: Token) -> Response[Any]:
        """The first answer stands; the same one again is taken as a repeat, with
        `Idempotent-Replayed: true`.
        """
        event = request.resolved_event
        if media_type(event) == FORM:
            return await self._answer_by_form(request, token)
        refuse_unless(media_type(event), JSON, FORM)
        payload = read_json(event, self._body_limit)
        resumed = await self._client(token).resume_hook(token, payload)
        return self._answered(request, resumed, "Answered")

    async def _answer_by_form(self, request: Request, token: str) -> Response[Any]:
        event = request.resolved_event
        given = parse_form(read_text(event, self._body_limit))
        client = self._client(token)
        hook = await client.get_hook(token)
        form = form_of(hook.schema)
        try:
            resumed = await client.resume_hook(token, form.payload(given))
        except (PayloadRejected, Refusal) as error:
            if not _wants_page(event):
                raise
            return _form_again(hook, given, error)
        return self._answered(request, resumed, hook.name)

    def _answered(self, request: Request, resumed: Resumed, name: str) -> Response[Any]:
        request.context["run_id"] = resumed.run_id
        shape = resumed_shape(resumed)
        # In a header, so that the same answer again gets the same body.
        headers = dict.fromkeys(REPLAYED, "true") if shape.pop("repeated") else {}
        if _wants_page(request.resolved_event):
            return _html(answered_page(name), headers=headers)
        return _json(Answered, shape, headers=headers)


def _wants_page(event: BaseProxyEvent) -> bool:
    return prefers_html(event.headers.get("accept") or "")


def _form_again(hook: HookRow, given: Any, error: PayloadRejected | Refusal) -> Response[Any]:
    """The form with what was filled in and what is wrong with it; the hook is still open."""
    if isinstance(error, PayloadRejected):
        flaws, status = shortened(error.errors), 422
    else:
        flaws, status = [flaw("", error.detail)], error.kind.status
    return _html(hook_page(hook, form_of(hook.schema), given=given, flaws=flaws), status=status)


def _html(page: str, *, status: int = 200, headers: dict[str, str] | None = None) -> Response[Any]:
    return Response(status, HTML, page, headers={**COMMON_HEADERS, **HEADERS, **(headers or {})})


def _json(
    model: type[HookView | Answered], shape: Shape, *, headers: dict[str, str] | None = None
) -> Response[Any]:
    # Checked here: Powertools checks what is declared, and these routes answer with pages as well.
    model.model_validate(shape)
    return reply(shape, headers={**HEADERS, **(headers or {})})


def _without_token(hook: PendingHook) -> Shape:
    shape = hook_shape(hook)
    # Who may look at runs may not decide for others: a token goes to whom `on_created` sends it.
    del shape["token"]
    return shape
