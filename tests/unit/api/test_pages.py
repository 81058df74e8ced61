"""Pages: who gets one, and that nothing in them is markup but our own."""

from __future__ import annotations

import base64
import hashlib
import json
import re

import pytest

from stepwell.api.forms import form_of
from stepwell.api.pages import HEADERS, hook_page, prefers_html, problem_page
from stepwell.api.problems import Refusal
from stepwell.core.records import HookRow, HookStatus

EVIL = "\"'><script>alert(1)</script>&"


def row(status: HookStatus = HookStatus.PENDING, **changes: object) -> HookRow:
    fields = {
        "run_id": "r",
        "hook_id": "ask:1",
        "name": "ask",
        "step": None,
        "key_id": "k1",
        "created_at": 0,
        "status": status,
        **changes,
    }
    return HookRow(**fields)  # type: ignore[arg-type] - fields by name


@pytest.mark.parametrize(
    ("accept", "page"),
    [
        ("", False),
        ("*/*", False),
        ("application/json", False),
        ("text/html", True),
        ("TEXT/HTML", True),
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", True),
        ("application/json, text/html;q=0.9", False),
        ("application/json;q=0.5, text/html", True),
        ("text/html;q=0", False),
        ("text/html;q=x", False),
        ("application/problem+json, text/html;q=0.1", False),
        (",;,", False),
    ],
)
def test_a_page_is_for_those_who_ask_for_one(accept: str, page: bool) -> None:
    assert prefers_html(accept) is page


def test_nothing_from_outside_is_markup() -> None:
    schema = json.dumps(
        {
            "type": "object",
            "title": EVIL,
            "description": EVIL,
            "properties": {
                EVIL: {"type": "string", "title": EVIL, "description": EVIL, "default": EVIL},
                "choice": {"enum": [EVIL, "b"], "default": EVIL},
                "short": {"type": "string", "maxLength": 5, "default": EVIL},
            },
        }
    )
    flaws = [{"pointer": f"/{EVIL}", "message": EVIL}]
    pages = [
        hook_page(row(name=EVIL), form_of(schema), flaws=flaws),
        hook_page(row(name=EVIL), form_of(schema), given={EVIL: EVIL, "short": EVIL}, flaws=flaws),
        hook_page(row(), form_of(None), given={"payload": f"</textarea>{EVIL}"}),
        problem_page(Refusal("bad_body", EVIL, errors=flaws), EVIL),
    ]
    for page in pages:
        assert "<script" not in page
        assert "</textarea>" not in page.replace("</textarea><", "<")
        assert "\"'" not in page
        assert "&lt;script&gt;" in page


def test_the_policy_allows_the_style_that_is_there_and_no_other() -> None:
    page = hook_page(row(), form_of(None))
    styles = re.findall(r"<style>(.*?)</style>", page)
    assert len(styles) == 1
    digest = base64.b64encode(hashlib.sha256(styles[0].encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in HEADERS["Content-Security-Policy"]
    assert "style=" not in page


def test_a_page_says_until_when_and_only_asks_while_it_is_open() -> None:
    open_page = hook_page(row(expires_at=86_400_000), form_of(None))
    assert "1970-01-02T00:00:00.000Z" in open_page
    for status in (HookStatus.RECEIVED, HookStatus.EXPIRED, HookStatus.CLOSED):
        assert "<form" not in hook_page(row(status), form_of(None))


def test_what_is_wrong_is_named_with_its_place_if_it_has_one() -> None:
    flaws = [{"pointer": "/amount", "message": "too much"}, {"message": "no JSON"}]
    page = hook_page(row(), form_of(None), flaws=flaws)
    assert "<li>amount too much</li><li>no JSON</li>" in page
