"""Bodies of requests: bounded, of a known media type, and read strictly.

Powertools would read a body too, yet it takes NaN and repeated names, and the first element of an
array for the whole: an answer must not be changed on its way.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Mapping
from typing import Any, NoReturn
from urllib.parse import parse_qsl

from aws_lambda_powertools.utilities.data_classes.common import BaseProxyEvent

from stepwell.api.problems import Refusal

JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
_CHARSETS = ("utf-8", "utf8", "us-ascii")
_DEPTH = 100
_FIELDS = 1_000


def media_type(event: BaseProxyEvent) -> str:
    """The media type of the body, without parameters; empty if none is stated.

    Raises `Refusal` for a charset that is not UTF-8.
    """
    kind, *parameters = (event.headers.get("content-type") or "").split(";")
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset" and value.strip(' "').lower() not in _CHARSETS:
            raise Refusal("unsupported_media_type", "Text is read as UTF-8 alone.")
    return kind.strip().lower()


def read_text(event: BaseProxyEvent, limit: int) -> str:
    """The body as text. Raises `Refusal` when it is too large or not UTF-8."""
    body = event.body or ""
    encoded = bool(event.is_base64_encoded)
    size = len(body) * 3 // 4 if encoded else len(body)
    if size > limit + 2:  # as cheap as possible; padding makes it two bytes too many
        _refuse_size(size, limit)
    try:
        data = base64.b64decode(body, validate=True) if encoded else body.encode()
        text = data.decode()
    except (binascii.Error, UnicodeError):
        raise Refusal("bad_body", "The body is not UTF-8.") from None
    if len(data) > limit:
        _refuse_size(len(data), limit)
    return text


def _refuse_size(size: int, limit: int) -> NoReturn:
    detail = f"The body has {size:,} bytes, the limit is {limit:,}."
    raise Refusal("body_too_large", detail, size=size, limit=limit)


def read_json(event: BaseProxyEvent, limit: int, *, optional: bool = False) -> Any:
    """The body as JSON; `{}` for no body at all, if it is optional. Raises `Refusal`."""
    text = read_text(event, limit)
    if optional and not text:
        return {}
    refuse_unless(media_type(event), JSON)
    return parse_json(text)


def refuse_unless(kind: str, *known: str) -> None:
    """Raise `Refusal` for a media type that is none of these."""
    if kind not in known:
        stated = f"not {kind}" if kind else "and the request states no media type"
        raise Refusal(
            "unsupported_media_type",
            f"The body has to be {' or '.join(known)}, {stated}.",
            headers={"Accept": ", ".join(known)},
        )


def parse_json(text: str) -> Any:
    """What JSON text stands for. Raises `Refusal` on all that JSON readers might not agree on."""
    try:
        value = json.loads(
            text,
            object_pairs_hook=_no_name_twice,
            parse_constant=_no_constant,
            parse_float=_finite,
        )
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise Refusal("bad_body", f"The body is not JSON: {place}: {error.msg}.") from None
    except RecursionError:
        _refuse_depth()
    except ValueError as error:
        raise Refusal("bad_body", f"The body is not JSON as it is read here: {error}.") from None
    _check_depth(value, text)
    return value


def _no_name_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError("an object has a name twice")
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError("a number is out of range")
    return value


def _check_depth(value: Any, text: str) -> None:
    if text.count("[") + text.count("{") <= _DEPTH:
        return
    level = [value]
    for _ in range(_DEPTH + 1):
        level = [
            child
            for each in level
            if isinstance(each, dict | list)
            for child in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return
    _refuse_depth()


def _refuse_depth() -> NoReturn:
    raise Refusal("bad_body", f"The body is nested deeper than {_DEPTH} levels.") from None


def parse_form(text: str) -> Mapping[str, str]:
    """The fields of a form by name. Raises `Refusal` when a name comes twice."""
    try:
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=_FIELDS)
    except ValueError:
        raise Refusal("bad_body", "The body is not a form in UTF-8.") from None
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise Refusal("bad_body", "The form has a field twice.")
    return fields
