"""A door to moto on a real socket, at which requests fail as they do on a network.

It speaks HTTP/1.1 on 127.0.0.1, keeps connections alive, and hands on to moto what comes. Its
`plan` says for each attempt at a request what becomes of it, and each is noted, so that a test can
count them. What Lambda itself asks of SQS always passes and is not noted.
"""

from __future__ import annotations

import re
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from botocore.awsrequest import AWSPreparedRequest
from botocore.compat import HTTPHeaders
from moto.core.base_backend import BackendDict
from moto.core.botocore_stubber import BotocoreStubber
from moto.core.model_instances import reset_model_data

from tests.contract import moto_safe
from tests.contract.messaging import REGION
from tests.wire.faults import Fault, Reply

_CREDENTIAL = re.compile(r"Credential=[^/]+/[^/]+/[^/]+/([^/]+)/")
_ATTEMPT = re.compile(r"attempt=(\d+)")
_SCHEDULES = {"POST": "CreateSchedule", "GET": "GetSchedule", "PUT": "UpdateSchedule"}
_SCHEDULES |= {"DELETE": "DeleteSchedule"}
_OBJECTS = {"PUT": "PutObject", "GET": "GetObject"}
#: What Lambda does with a queue that feeds a function.
_LAMBDAS = frozenset({"ReceiveMessage", "DeleteMessage"})
#: Headers that the door says itself.
_OURS = frozenset({"content-length", "connection", "transfer-encoding"})
#: Longer than any test waits for anything; a thread of the door is not to outlive its test.
_PATIENCE = 30.0


_moto = BotocoreStubber()


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One attempt at a request. `request` is the same for all attempts at it."""

    service: str
    operation: str
    attempt: int
    request: str


Plan = Callable[[Asked], Fault | None]


def no_faults(_: Asked) -> None:
    """The plan of a network on a good day."""


@dataclass(kw_only=True)
class Door:
    """The listening door. A test may change its plan at any time."""

    endpoint: str
    plan: Plan = no_faults
    seen: list[Asked] = field(default_factory=list)
    #: Set by a test when its client has given up on a reply that is held.
    released: threading.Event = field(default_factory=threading.Event)
    #: While a test looks or AWS itself is at work: nothing is noted and nothing fails.
    quiet: bool = False
    _one_at_a_time: Any = field(default_factory=threading.Lock)
    _holding: threading.Condition = field(default_factory=threading.Condition)
    _held: int = 0

    def attempts(self, *operations: str) -> list[int]:
        """The numbers of the attempts at some operations, or at all, in order."""
        return [a.attempt for a in self.seen if not operations or a.operation in operations]

    def wait_held(self, number: int) -> None:
        """Return when the work of so many requests is done whose replies are held, and forget them.

        A client that waits hardly at all may have given up before the door came to look.
        """
        with self._holding:
            assert self._holding.wait_for(lambda: self._held >= number, _PATIENCE)
            self._held = 0

    def serve(self, connection: socket.socket) -> None:
        """Answer the requests of one connection, until it ends."""
        with connection, suppress(OSError), connection.makefile("rb") as stream:
            while request := _read(stream, connection):
                if not self._answer(connection, request):
                    return

    def _answer(self, connection: socket.socket, request: AWSPreparedRequest) -> bool:
        """Answer one request. Whether the connection lives on."""
        asked = _asked(request)
        fault = None
        if not self.quiet and asked.operation not in _LAMBDAS:
            self.seen.append(asked)
            fault = self.plan(asked)
        done = self._done(request, asked.service) if fault is None or fault.done else None
        if fault is None:
            assert done is not None
            connection.sendall(done.head() + done.body)
            return True
        if fault.held:
            with self._holding:
                self._held += 1
                self._holding.notify_all()
            self.released.wait(_PATIENCE)
        elif (wire := fault.reply(asked.service, done)) is not None:
            connection.sendall(wire)
            if fault.closes:
                connection.shutdown(socket.SHUT_WR)
                _drain(connection)
            return not fault.closes
        # Not a goodbye but a reset: nothing more is sent, and what is on its way is thrown away.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return False

    def _done(self, request: AWSPreparedRequest, service: str) -> Reply:
        """What moto makes of a request. It knows a service by the name of its host."""
        host = f"{service}.{REGION}.amazonaws.com" if service != "s3" else "s3.amazonaws.com"
        request.url = f"https://{host}{request.url}"
        request.headers.replace_header("host", host)
        with self._one_at_a_time:
            answered = _moto.process_request(request)
        assert answered is not None, request.url
        status, headers, body = answered
        content = body.encode() if isinstance(body, str) else body
        kept = [(k, str(v)) for k, v in headers.items() if k.lower() not in _OURS]
        return Reply(status=status, headers=tuple(kept), body=content)


def _read(stream: Any, connection: socket.socket) -> AWSPreparedRequest | None:
    """The next request of a connection; None at its end."""
    first: bytes = stream.readline()
    if not first:
        return None
    method, target, _ = first.decode().split(" ")
    headers = HTTPHeaders()
    while line := stream.readline().decode("latin-1").strip():
        name, _, value = line.partition(":")
        headers[name.strip()] = value.strip()
    if headers.get("expect", "").lower() == "100-continue":
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
    body = stream.read(int(headers.get("content-length") or 0))
    return AWSPreparedRequest(method, target, headers, body, stream_output=False)


def _asked(request: AWSPreparedRequest) -> Asked:
    headers = request.headers
    found = _CREDENTIAL.search(headers.get("authorization", ""))
    service = found[1] if found else ""
    target = headers.get("x-amz-target")
    if target is not None:
        operation = target.partition(".")[2]
    else:
        names = {"scheduler": _SCHEDULES, "s3": _OBJECTS}.get(service, {})
        operation = names.get(request.method, f"{service} {request.method}")
    attempt = _ATTEMPT.search(headers.get("amz-sdk-request", ""))
    return Asked(
        service=service,
        operation=operation,
        attempt=int(attempt[1]) if attempt else 1,
        request=headers.get("amz-sdk-invocation-id", ""),
    )


def _drain(connection: socket.socket) -> None:
    """Read what still comes, so that closing says goodbye and does not reset."""
    connection.settimeout(_PATIENCE)
    while connection.recv(65536):
        pass


@contextmanager
def open_door() -> Iterator[Door]:
    """A door with an empty AWS behind it."""
    moto_safe.install()
    BackendDict.reset()
    reset_model_data()
    listener = socket.create_server(("127.0.0.1", 0))
    door = Door(endpoint=f"http://127.0.0.1:{listener.getsockname()[1]}")
    threads: list[threading.Thread] = []
    open_now: list[socket.socket] = []

    def accept() -> None:
        with suppress(OSError):  # the listener is closed
            while True:
                connection, _ = listener.accept()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                open_now.append(connection)
                thread = threading.Thread(target=door.serve, args=(connection,))
                threads.append(thread)
                thread.start()

    accepting = threading.Thread(target=accept)
    accepting.start()
    try:
        yield door
    finally:
        door.released.set()
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        accepting.join()
        for connection in open_now:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join()
