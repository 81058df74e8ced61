"""What may become of a request on its way to AWS and back."""

from __future__ import annotations

import json
from binascii import crc32
from collections.abc import Callable
from dataclasses import dataclass, replace
from http import HTTPStatus

from stepwell.adapters.aws.clients import ATTEMPTS

_JSON = "application/x-amz-json-1.0"
_HTML = b"<!DOCTYPE html>\n<html><body><h1>A box in the middle</h1><hr></body></html>\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An HTTP reply. `length` is what it announces, by default what it holds."""

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()
    length: int | None = None

    def head(self) -> bytes:
        """Status line and headers, as they are sent."""
        reason = HTTPStatus(self.status).phrase
        length = len(self.body) if self.length is None else self.length
        lines = [f"HTTP/1.1 {self.status} {reason}", f"Content-Length: {length}"]
        lines += [f"{name}: {value}" for name, value in self.headers]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

    def with_header(self, name: str, value: str) -> Reply:
        """The reply with one header set."""
        others = tuple(each for each in self.headers if each[0].lower() != name)
        return replace(self, headers=(*others, (name, value)))


def _reset(_service: str, _done: Reply | None) -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What happens to one attempt.

    With `done` AWS has done the work first. `reply` makes the bytes that are sent in the end, and
    with `closes` the connection ends with them; None resets it. With `held` there is no reply for
    as long as anybody waits for one.
    """

    name: str
    done: bool = False
    held: bool = False
    closes: bool = False
    reply: Callable[[str, Reply | None], bytes | None] = _reset

    def __str__(self) -> str:
        return self.name


def error(code: str, status: int, message: str = "no") -> Fault:
    """An error of AWS's, as the service words it."""

    def reply(service: str, _: Reply | None) -> bytes:
        made = error_reply(service, code, status, message)
        return made.head() + made.body

    return Fault(name=f"{status} {code}", reply=reply)


def error_reply(service: str, code: str, status: int, message: str) -> Reply:
    """An error in the protocol of a service."""
    if service == "s3":
        text = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
        return Reply(
            status=status, body=text.encode(), headers=(("Content-Type", "application/xml"),)
        )
    if service == "scheduler":
        body = json.dumps({"Message": message}).encode()
        headers = (("Content-Type", "application/json"), ("x-amzn-ErrorType", f"{code}:http://x/"))
        return Reply(status=status, body=body, headers=headers)
    prefix = {"sqs": "com.amazonaws.sqs#", "dynamodb": "com.amazonaws.dynamodb.v20120810#"}
    body = json.dumps({"__type": prefix.get(service, "") + code, "message": message}).encode()
    made = Reply(status=status, body=body, headers=(("Content-Type", _JSON),))
    if service == "sqs":
        return made.with_header(
            "x-amzn-query-error", f"{code};{'Sender' if status < 500 else 'Receiver'}"
        )
    return made.with_header("x-amz-crc32", str(crc32(body))) if service == "dynamodb" else made


def said(name: str, status: int, body: bytes, content_type: str = "text/html") -> Fault:
    """A reply that is not AWS's."""
    made = Reply(status=status, body=body, headers=(("Content-Type", content_type),))
    return Fault(name=name, reply=lambda *_: made.head() + made.body)


def _cut(_service: str, done: Reply | None) -> bytes:
    assert done is not None
    wire = done.head() + done.body
    # In the middle of the body; where there is none, of the first line.
    return wire[: len(done.head()) + len(done.body) // 2] if done.body else wire[:9]


def _cut_late(_service: str, done: Reply | None) -> bytes:
    assert done is not None
    others = tuple(each for each in done.headers if each[0].lower() != "x-amz-crc32")
    return replace(done, headers=others).head() + done.body[:-1]


def _misannounced(_service: str, done: Reply | None) -> bytes:
    assert done is not None
    # The client is told not to come again by this way: what it leaves unread would be in its way.
    made = done.with_header("connection", "close")
    return replace(made, length=len(done.body) // 2).head() + done.body


def _altered(_service: str, done: Reply | None) -> bytes:
    assert done is not None
    made = done.with_header("x-amz-crc32", str(crc32(done.body) ^ 1))
    return made.head() + made.body


THROTTLED = error("ThrottlingException", 400)
SLOW_DOWN = error("SlowDown", 503)
FAILED = error("InternalServerError", 500)
RESET = Fault(name="reset")
LOST = Fault(name="lost", done=True)
HELD = Fault(name="held", done=True, held=True)
CUT = Fault(name="cut", done=True, closes=True, reply=_cut)
#: Without its last byte: what is left may look whole, and only the length that was announced tells.
CUT_LATE = Fault(name="cut late", done=True, closes=True, reply=_cut_late)
MISANNOUNCED = Fault(name="misannounced", done=True, closes=True, reply=_misannounced)
ALTERED = Fault(name="altered", done=True, reply=_altered)
HTML_502 = said("html 502", 502, _HTML)
EMPTY_502 = said("empty 502", 502, b"")
HTML_200 = said("html 200", 200, _HTML)
EMPTY_200 = said("empty 200", 200, b"")
HALF_JSON = said("half of a JSON 200", 200, b'{"Item": {"pk": {"S": "R#', _JSON)
EMPTY_400 = said("empty 400", 400, b"")

#: Errors that another attempt does not mend.
DENIED = error("AccessDeniedException", 403)
UNHEARD = error("NeverHeardOfException", 400)

EXPIRED = "Signature expired: 20260101T000000Z is now earlier than 20260101T001000Z (- 5 min.)"
EARLY = "Signature not yet current: 20260101T001000Z is still later than 20260101T000500Z"
WRONG = "The request signature we calculated does not match the signature you provided."

#: What AWS may say, whether it may pass, and how often botocore asks.
SAID = [
    (error("NeverHeardOfException", 400), False, 1),
    (error("NeverHeardOfException", 403), False, 1),
    (error("NeverHeardOfException", 409), False, 1),
    (error("NeverHeardOfException", 429), True, 1),
    (error("NeverHeardOfException", 500), True, ATTEMPTS),
    (error("NeverHeardOfException", 503), True, ATTEMPTS),
    (error("NeverHeardOfException", 507), True, 1),
    (EMPTY_400, False, 1),
    (error("AccessDeniedException", 403), False, 1),
    (error("UnrecognizedClientException", 400), True, 1),
    (error("ExpiredTokenException", 400), True, 1),
    (error("ExpiredToken", 400), True, 1),
    (error("RequestExpired", 400), True, 1),
    (error("RequestTimeTooSkewed", 403), True, 1),
    (error("RequestInTheFuture", 403), True, 1),
    (error("InvalidSignatureException", 403, EXPIRED), True, 1),
    (error("InvalidSignatureException", 403, EARLY), True, 1),
    (error("InvalidSignatureException", 403, WRONG), False, 1),
    (error("SignatureDoesNotMatch", 403, EXPIRED), True, 1),
    (error("SignatureDoesNotMatch", 403, WRONG), False, 1),
]
