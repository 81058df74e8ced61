"""The door to moto: every request of the functions comes through here, and is seen.

SQS stands here: moto checks what is sent, and `Sqs` keeps it, for moto loses the order of a FIFO
queue when a message comes again. All else is moto's.
"""

from __future__ import annotations

import io
import json
import re
import threading
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from werkzeug.serving import make_server

from tests.contract import moto_safe

_CREDENTIAL = re.compile(r"Credential=([^/]+)/[^/]+/[^/]+/([^/]+)/")
_SCHEDULES = {"POST": "CreateSchedule", "GET": "GetSchedule", "PUT": "UpdateSchedule"}
_OBJECTS = {"PUT": "PutObject", "GET": "GetObject"}


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request to AWS."""

    caller: str
    operation: str
    body: dict[str, Any]


class Sqs(Protocol):
    """What the queues do, in SQS's place."""

    def sent(self, request: Request, message_id: str) -> None:
        """A message was taken."""

    def change_visibility(self, receipt: str, seconds: int) -> bool:
        """Whether there is such a receipt."""

    def delete(self, receipt: str) -> bool:
        """Whether there is such a receipt."""


class Front:
    """The WSGI application.

    `watch(request, done)` is asked before each request whether it shall be done, and told after it.
    """

    def __init__(self, sqs: Sqs) -> None:
        self.watch: Callable[[Request, bool], bool] = lambda request, done: True
        self._sqs = sqs
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._one_at_a_time = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = io.BytesIO(body)
        request = _request(environ, body)
        with self._one_at_a_time:
            if self.watch(request, False):
                status, headers, content = self._answer(request, environ)
                self.watch(request, True)
            else:
                status, headers, content = "503 Nobody Reads This", [], b""
        start_response(status, headers)
        return [content]

    def _answer(self, request: Request, environ: dict[str, Any]) -> tuple[str, Any, bytes]:
        if request.operation == "ChangeMessageVisibility":
            receipt, seconds = request.body["ReceiptHandle"], request.body["VisibilityTimeout"]
            return _receipt_reply(self._sqs.change_visibility(receipt, seconds))
        if request.operation == "DeleteMessage":
            return _receipt_reply(self._sqs.delete(request.body["ReceiptHandle"]))
        status, headers, content = self._ask_moto(environ)
        if request.operation == "SendMessage" and status.startswith("200"):
            url = request.body["QueueUrl"]
            self._sqs.sent(url, request.body, json.loads(content)["MessageId"])
        elif request.operation == "SendMessageBatch" and status.startswith("200"):
            ids = {each["Id"]: each["MessageId"] for each in json.loads(content)["Successful"]}
            for entry in request.body["Entries"]:
                self._sqs.sent(request.body["QueueUrl"], entry, ids[entry["Id"]])
        return status, headers, content

    def _ask_moto(self, environ: dict[str, Any]) -> tuple[str, Any, bytes]:
        begun: list[Any] = []

        def start_response(status: str, headers: Any, exc_info: Any = None) -> Any:
            begun[:] = [status, headers]

        application = self._moto.get_application(environ)
        content = b"".join(application(environ, start_response))
        return begun[0], begun[1], content


def _receipt_reply(known: bool) -> tuple[str, Any, bytes]:
    headers = [("Content-Type", "application/x-amz-json-1.0")]
    if known:
        return "200 OK", headers, b"{}"
    error = {"__type": "com.amazonaws.sqs#ReceiptHandleIsInvalid", "message": "stale receipt"}
    return "400 Bad Request", headers, json.dumps(error).encode()


def _request(environ: dict[str, Any], body: bytes) -> Request:
    found = _CREDENTIAL.search(environ.get("HTTP_AUTHORIZATION", ""))
    caller, service = (found[1], found[2]) if found else ("nobody", "")
    target = environ.get("HTTP_X_AMZ_TARGET")
    if target is not None:
        return Request(
            caller=caller, operation=target.partition(".")[2], body=json.loads(body or b"{}")
        )
    method = environ["REQUEST_METHOD"]
    names = {"scheduler": _SCHEDULES, "s3": _OBJECTS}.get(service, {})
    return Request(caller=caller, operation=names.get(method, f"{service} {method}"), body={})


class _QuietHandler(MotoRequestHandler):
    """Serves and does not log."""

    def log_request(self, code: Any = "-", size: Any = "-") -> None:
        """Nothing."""


@contextmanager
def serving(front: Front) -> Iterator[str]:
    """The endpoint of an empty AWS behind the front, for as long as it is needed."""
    moto_safe.install()
    server = make_server("127.0.0.1", 0, front, threaded=True, request_handler=_QuietHandler)
    endpoint = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        reset = urllib.request.Request(f"{endpoint}/moto-api/reset", method="POST")
        with urllib.request.urlopen(reset):
            pass
        yield endpoint
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
