"""Connections to AWS: made once, with bounded attempts, never blocking the event loop.

botocore repeats what failed in passing (throttling, 5xx, a lost connection or reply) a few times,
with growing, random pauses. What is left then is raised as `TransientError`, here and nowhere else;
all other errors (a missing permission, a queue that is not there) are raised as they are.

botocore takes a reply that ends early for a shorter one, and one that is no JSON for an empty one:
a row that is there would be reported missing. Such a reply counts as a failure here.

A reply that was lost says nothing about whether the request was done. Every call that goes through
here can be done twice: the callers see to that.
"""

from __future__ import annotations

import asyncio
import threading
from binascii import crc32
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeVar, cast

from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError,
    CredentialRetrievalError,
    FlexibleChecksumError,
    HTTPClientError,
    IncompleteReadError,
)
from botocore.parsers import ResponseParserError

from stepwell.adapters.aws.session import open_session
from stepwell.engine.ports import TransientError

if TYPE_CHECKING:  # the stubs are a tool of development and are not deployed
    from botocore.client import BaseClient
    from botocore.session import Session
    from types_boto3_s3 import S3Client
    from types_boto3_scheduler import EventBridgeSchedulerClient
    from types_boto3_sqs import SQSClient

P = ParamSpec("P")
T = TypeVar("T")

#: Attempts in all, the first one included.
ATTEMPTS = 4
CONNECT_TIMEOUT_S = 2.0
READ_TIMEOUT_S = 5.0
#: Calls at a time; the others wait for a thread, and each thread has its connection.
THREADS = 16

#: All that a call of a client may raise.
AWS_ERRORS = (BotoCoreError, ClientError, ResponseParserError)

_JSON = ("json", "rest-json")
_TRANSIENT_STATUS = frozenset({408, 429})
_TRANSIENT_CODES = frozenset(
    {
        "BandwidthLimitExceeded",
        "ExpiredToken",
        "ExpiredTokenException",
        "InternalError",
        "InternalFailure",
        "InternalServerError",
        "InternalServerException",
        "KMS.ThrottlingException",
        "KmsThrottled",
        "LimitExceededException",
        "OverLimit",
        "PriorRequestNotComplete",
        "ProvisionedThroughputExceededException",
        "ReplicatedWriteConflictException",
        "RequestExpired",
        "RequestInTheFuture",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestThrottledException",
        "RequestTimeTooSkewed",
        "RequestTimeout",
        "RequestTimeoutException",
        "ServiceQuotaExceededException",
        "ServiceUnavailable",
        "ServiceUnavailableException",
        "SlowDown",
        "Throttled",
        "ThrottledException",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
        "TransactionInProgressException",
        # DynamoDB documents it as one to repeat: a role's new credentials are not known everywhere.
        "UnrecognizedClientException",
    }
)
#: Said of a wrong key, too: then another attempt changes nothing.
_SIGNATURE_CODES = frozenset({"AuthFailure", "InvalidSignatureException", "SignatureDoesNotMatch"})
#: A process that was frozen between signing and sending, or a clock that is being set right.
_SIGNED_AT_ANOTHER_TIME = ("Signature expired", "Signature not yet current")
_TRANSIENT_ERRORS = (
    ConnectionError,
    CredentialRetrievalError,
    FlexibleChecksumError,
    HTTPClientError,
    IncompleteReadError,
    ResponseParserError,
)


def client_config() -> Config:
    """How every client of ours connects and repeats."""
    return Config(
        # `max_attempts` would count without the first one.
        retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
        connect_timeout=CONNECT_TIMEOUT_S,
        read_timeout=READ_TIMEOUT_S,
        max_pool_connections=THREADS,
        tcp_keepalive=True,
    )


def error_code(error: ClientError) -> str:
    """AWS's name for an error, without the prefix that SQS gives it for older clients."""
    code: str = error.response.get("Error", {}).get("Code", "")
    return code.removeprefix("AWS.SimpleQueueService.")


def is_transient(error: BotoCoreError | ClientError | ResponseParserError) -> bool:
    """Whether the same call may work later."""
    if isinstance(error, ClientError):
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        code = error_code(error)
        if status < 500 and code in _SIGNATURE_CODES:
            told = error.response.get("Error", {}).get("Message", "")
            return told.startswith(_SIGNED_AT_ANOTHER_TIME)
        return status >= 500 or status in _TRANSIENT_STATUS or code in _TRANSIENT_CODES
    return isinstance(error, _TRANSIENT_ERRORS)


def raise_mapped(error: BotoCoreError | ClientError | ResponseParserError) -> NoReturn:
    """Raise it as `TransientError` if the same call may work later, else as it is."""
    if is_transient(error):
        raise TransientError(f"AWS: {error}") from error
    raise error


def refuse_broken_replies(client: BaseClient) -> None:
    """Have a client take a reply that did not arrive whole for a failure, and repeat the request.

    It asks whether to repeat after every reply, before it makes anything of it.
    """
    service = client.meta.service_model.service_id.hyphenize()
    client.meta.events.register_first(f"needs-retry.{service}", _fail_if_broken)


def _fail_if_broken(response: tuple[Any, dict[str, Any]] | None, operation: Any, **_: Any) -> None:
    if response is None:
        return
    reply, parsed = response
    if operation.has_streaming_output and reply.status_code < 300:
        return  # its body is not read yet: whoever reads it is told of its end
    problem = _broken(reply, operation)
    if problem is None:
        return
    # What a proxy would say of a server that it does not understand.
    reply.status_code = 502
    parsed["Error"] = {"Code": "BrokenReply", "Message": problem}
    parsed.setdefault("ResponseMetadata", {})["HTTPStatusCode"] = 502


def _broken(reply: Any, operation: Any) -> str | None:
    """What is wrong with the body of a reply."""
    body: bytes = reply.content
    length = reply.headers.get("content-length", "")
    if length.isdecimal() and len(body) < int(length) and operation.http["method"] != "HEAD":
        return f"{len(body)} bytes came of {length}"
    checksum = reply.headers.get("x-amz-crc32", "")  # only DynamoDB sends it
    if checksum.isdecimal() and crc32(body) != int(checksum):
        return "the checksum is another"
    if reply.status_code < 300 and operation.service_model.resolved_protocol in _JSON:
        text = body.strip()
        # Where nothing is to be told the body may be empty.
        told = bool(text) or bool(getattr(operation.output_shape, "members", ()))
        if told and not (text.startswith(b"{") and text.endswith(b"}")):
            return "the body is no JSON object"
    return None


class Clients:
    """The clients of one process, and the threads that wait for their replies.

    Make one per process, when the module of the Lambda handler is loaded.
    """

    def __init__(self, session: Session | None = None, *, threads: int = THREADS) -> None:
        self._session = session or open_session()
        self._config = client_config()
        self._making = threading.Lock()
        self.sqs = cast("SQSClient", self._client("sqs"))
        self._threads = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="stepwell-aws")

    @cached_property
    def s3(self) -> S3Client:
        """Made on first use: it is the slowest to make, and only large values need it."""
        with self._making:  # a session is not safe to share while a client is being made
            return cast("S3Client", self._client("s3"))

    @cached_property
    def scheduler(self) -> EventBridgeSchedulerClient:
        """Made on first use: only long waits need it."""
        with self._making:
            return cast("EventBridgeSchedulerClient", self._client("scheduler"))

    def _client(self, service: str) -> BaseClient:
        client: BaseClient = self._session.create_client(service, config=self._config)
        refuse_broken_replies(client)
        return client

    async def call(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """What a client's method returns, called in a thread. Raises `TransientError`.

        Whoever is cancelled meanwhile does not stop the request: it may be done all the same.
        """
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._threads, partial(work, *args, **kwargs))
        except AWS_ERRORS as error:
            raise_mapped(error)

    def close(self) -> None:
        """Wait for the calls that are under way, then close the connections."""
        self._threads.shutdown()
        self.sqs.close()
        for name in ("s3", "scheduler"):
            if name in vars(self):
                getattr(self, name).close()
