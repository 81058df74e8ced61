"""The pages behind a hook's link: plain HTML, no script, nothing fetched from anywhere.

A page's address is a secret, so it is kept from other sites, from caches and from search engines.
Everything that is not written here is escaped.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from html import escape
from typing import Final

from stepwell.api.forms import Field, Form
from stepwell.api.problems import Refusal
from stepwell.core.records import HookRow, HookStatus
from stepwell.shapes import iso

HTML: Final = "text/html; charset=utf-8"

_STYLE: Final = (
    ":root{color-scheme:light dark}"
    "body{font:16px/1.5 system-ui,sans-serif;margin:0 auto;max-width:36rem;padding:2rem 1rem}"
    "label,legend{display:block;font-weight:600;margin-top:1rem}"
    "input,select,textarea,button{box-sizing:border-box;font:inherit;padding:.5rem;width:100%}"
    "button{cursor:pointer;margin-top:1.5rem}"
    ".hint{margin:0;opacity:.75}.flaws{border-left:.25rem solid;padding-left:1rem}"
)
_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()

#: For every response of a token's address, JSON as well.
HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": (
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; form-action 'self'; "
        "base-uri 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "Vary": "Accept",
    "X-Robots-Tag": "noindex, nofollow",
}

_ENDED: Final = {
    HookStatus.RECEIVED: "This was answered already.",
    HookStatus.EXPIRED: "The time to answer this has passed.",
    HookStatus.CLOSED: "Nobody waits for an answer to this any more.",
}


def prefers_html(accept: str) -> bool:
    """Whether a request asks for a page: by name, and no less than for JSON."""
    wanted: dict[str, float] = {}
    for each in accept.lower().split(","):
        kind, *parameters = (part.strip() for part in each.split(";"))
        weights = [p.removeprefix("q=") for p in parameters if p.startswith("q=")]
        wanted[kind] = _weight(weights[0]) if weights else 1.0
    json = max(wanted.get(kind, 0.0) for kind in ("application/json", "application/problem+json"))
    return wanted.get("text/html", 0.0) > 0 and wanted["text/html"] >= json


def _weight(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def hook_page(
    hook: HookRow,
    form: Form,
    *,
    given: Mapping[str, str] | None = None,
    flaws: Iterable[Mapping[str, str]] = (),
) -> str:
    """The page of a hook: its form while it is open, `given` filled in and `flaws` named."""
    if hook.status is not HookStatus.PENDING:
        return _page(_title(hook), f"<p>{_ENDED[hook.status]}</p>")
    until = hook.expires_at if hook.expires_at is not None else hook.due_at
    parts = [
        _paragraph(form.hint),
        _paragraph("" if until is None else f"Please answer before {iso(until)}."),
        _flaws(flaws),
        # Without an action it goes to this page's own address.
        '<form method="post" accept-charset="utf-8">',
        *(_field(each, given) for each in form.fields),
        '<button type="submit">Send the answer</button></form>',
    ]
    return _page(_title(hook), "".join(parts))


def _title(hook: HookRow) -> str:
    return hook.name if hook.question is None else hook.question


def answered_page(name: str) -> str:
    """What is shown after an answer, and after the same answer again."""
    return _page(name, "<p>Thank you. Your answer was taken.</p>")


def problem_page(refusal: Refusal, request_id: str | None) -> str:
    """What is shown when something went wrong."""
    flaws = _flaws(refusal.members.get("errors", []))
    request = f"Request {request_id}" if request_id else ""
    return _page(
        refusal.kind.title, f"{_paragraph(refusal.detail)}{flaws}{_paragraph(request, 'hint')}"
    )


def _page(title: str, body: str) -> str:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<meta name="robots" content="noindex,nofollow"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style></head>"
        f"<body><main><h1>{escape(title)}</h1>{body}</main></body></html>"
    )


def _paragraph(text: str, kind: str = "") -> str:
    mark = f' class="{kind}"' if kind else ""
    return f"<p{mark}>{escape(text)}</p>" if text else ""


def _flaws(flaws: Iterable[Mapping[str, str]]) -> str:
    told = (f"{each.get('pointer', '').removeprefix('/')} {each['message']}" for each in flaws)
    items = "".join(f"<li>{escape(each.strip())}</li>" for each in told)
    return f'<ul class="flaws" role="alert">{items}</ul>' if items else ""


def _field(field: Field, given: Mapping[str, str] | None) -> str:
    text = field.default if given is None else given.get(field.name, "")
    # Text that has to be there may be empty: whether it may is the schema's to say.
    required = field.required and not field.nullable and field.kind not in ("text", "long")
    attributes = {"id": field.name, "name": field.name, **dict(field.attributes)}
    marks = "".join(f' {name}="{escape(value)}"' for name, value in attributes.items())
    marks += " required" if required else ""
    label = f'<label for="{escape(field.name)}">{escape(field.label)}</label>'
    hint = _paragraph(field.hint, "hint")
    if field.kind == "choice":
        return f"{label}{hint}<select{marks}>{_options(field, text)}</select>"
    if field.kind in ("long", "json"):
        # The first newline of a textarea is not part of its text.
        rows = 8 if field.kind == "json" else 3
        return f'{label}{hint}<textarea{marks} rows="{rows}">\n{escape(text)}</textarea>'
    return f'{label}{hint}<input{marks} value="{escape(text)}">'


def _options(field: Field, chosen: str) -> str:
    options = [("", "-"), *field.choices]
    return "".join(
        f'<option value="{escape(value)}"{" selected" if value == chosen else ""}>'
        f"{escape(label)}</option>"
        for value, label in options
    )
