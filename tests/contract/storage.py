"""DynamoDB and S3 on moto, with faults: what the tests of the AWS store and blobs are given."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from types import SimpleNamespace
from typing import Any

import botocore.endpoint
import botocore.loaders
import botocore.session
import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.exceptions import ConnectionClosedError, ReadTimeoutError
from moto import mock_aws
from moto.core.botocore_stubber import BotocoreStubber, MockRawResponse

from stepwell.adapters.aws.blobs import S3Blobs
from stepwell.adapters.aws.clients import Clients
from stepwell.adapters.aws.items import TableItem
from stepwell.adapters.aws.maps import DynamoMaps
from stepwell.adapters.aws.session import open_session
from stepwell.adapters.aws.store import DynamoStore
from stepwell.adapters.aws.streams import DynamoStreams
from stepwell.adapters.aws.table import Table
from tests.contract import moto_safe

_loader = cache(botocore.loaders.create_loader)

REGION = "us-east-1"
BUCKET = "values"
_FAULTY = "x-test-fault"

_ERRORS: dict[str, tuple[str, int]] = {
    "throttle": ("ProvisionedThroughputExceededException", 400),
    "slow down": ("SlowDown", 503),
    "500": ("InternalServerError", 500),
    "denied": ("AccessDeniedException", 400),
}


@dataclass(kw_only=True)
class Storage:
    """One table, one bucket, and the adapters on them."""

    clients: Clients
    table: Table
    store: DynamoStore
    blobs: S3Blobs
    maps: DynamoMaps
    streams: DynamoStreams
    #: Each attempt at a request, by the name of its operation.
    requests: list[str] = field(default_factory=list)

    def items(self, index: str | None = None) -> list[dict[str, Any]]:
        """All that the table or one of its indexes holds."""
        more = {} if index is None else {"IndexName": index}
        found: list[dict[str, Any]] = []
        for page in self.table.client.get_paginator("scan").paginate(
            TableName=self.table.name, **more
        ):
            found += page["Items"]
        return found

    def fault(self, client: Any, operation: str, *kinds: str) -> list[str]:
        """Let the next attempts at an operation fail, one kind each. Returns what is left.

        `lost` and `timeout` come after the request was done; all others instead of it.
        """
        service = client.meta.service_model.service_id.hyphenize()
        left = list(kinds)

        def before(request: AWSPreparedRequest, **_: Any) -> AWSResponse | None:
            if not left or left[0] in ("lost", "timeout"):
                return None
            kind = left.pop(0)
            request.headers[_FAULTY] = kind
            if kind == "reset":
                raise ConnectionClosedError(endpoint_url=request.url)
            code, status = _ERRORS[kind]
            body = f'{{"__type":"{code}","message":"no"}}'
            if service == "s3":
                body = f"<Error><Code>{code}</Code><Message>no</Message></Error>"
            if service == "cloudformation":
                body = f"<E><Error><Code>{code}</Code><Message>no</Message></Error></E>"
            return AWSResponse(request.url, status, {}, MockRawResponse(body))  # type: ignore[arg-type]

        def after(request: AWSPreparedRequest, event_name: str, **_: Any) -> None:
            if _FAULTY in request.headers or not event_name.endswith(f".{operation}"):
                return
            if left and left[0] in ("lost", "timeout"):
                error = ReadTimeoutError if left.pop(0) == "timeout" else ConnectionClosedError
                raise error(endpoint_url=request.url)

        client.meta.events.register_first(f"before-send.{service}.{operation}", before)
        # A handler of the more general name comes later: moto's, and after it this one.
        client.meta.events.register_last("before-send", after)
        return left


@contextmanager
def faulty_moto() -> Iterator[None]:
    """An empty account on moto, in which requests can be made to fail; repeats come at once."""
    moto_safe.install()
    stub: Callable[..., Any] = BotocoreStubber.__call__

    def unless_faulty(self: Any, event_name: str, request: Any, **more: Any) -> Any:
        # botocore asks all handlers, so moto would do the work whatever was replied before.
        return None if _FAULTY in request.headers else stub(self, event_name, request, **more)

    with pytest.MonkeyPatch.context() as patch, mock_aws():
        patch.setattr(BotocoreStubber, "__call__", unless_faulty)
        # Each session would read the descriptions of the services again: most of the time it takes.
        patch.setattr(botocore.session, "create_loader", lambda *_: _loader())
        patch.setattr(botocore.endpoint, "time", SimpleNamespace(sleep=lambda _: None))
        yield


def create_table(table: Table) -> None:
    """Create the table, on demand, with its indexes and TTL, where no template has."""
    schema: Any = TableItem._get_schema()
    table.client.create_table(
        TableName=table.name,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=schema["attribute_definitions"],
        KeySchema=_hash_first(schema["key_schema"]),
        GlobalSecondaryIndexes=[
            {
                "IndexName": each["index_name"],
                "KeySchema": _hash_first(each["key_schema"]),
                "Projection": each["projection"],
            }
            for each in schema["global_secondary_indexes"]
        ],
    )
    table.client.get_waiter("table_exists").wait(TableName=table.name)
    table.client.update_time_to_live(
        TableName=table.name,
        TimeToLiveSpecification={
            "Enabled": True,
            "AttributeName": TableItem.expires_at.attr_name,
        },
    )


def _hash_first(schema: list[dict[str, str]]) -> list[dict[str, str]]:
    """The keys in the order that DynamoDB asks for; pynamodb has them in that of attributes."""
    return sorted(schema, key=lambda key: key["KeyType"])


@contextmanager
def open_storage() -> Iterator[Storage]:
    """An empty table and an empty bucket on moto."""
    with faulty_moto():
        session = open_session(region=REGION)
        clients = Clients(session, threads=8)
        clients.s3.create_bucket(Bucket=BUCKET)
        table = Table("stepwell", region=REGION)
        create_table(table)
        storage = Storage(
            clients=clients,
            table=table,
            store=DynamoStore(table, clients),
            blobs=S3Blobs(clients, BUCKET),
            maps=DynamoMaps(table, clients),
            streams=DynamoStreams(table, clients),
        )

        def note(event_name: str, **_: Any) -> None:
            storage.requests.append(event_name.rpartition(".")[2])

        for client in (table.client, clients.s3):
            client.meta.events.register_first("before-send", note)
        yield storage
        clients.close()
        table.close()
