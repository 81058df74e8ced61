"""The laws of `stepwell.testing`, for deployments that are no `Environment`."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import unquote

from stepwell.adapters.aws.keys import HEADER
from stepwell.adapters.aws.signal_queue import load_signal_body
from stepwell.adapters.aws.wiring import AwsDeployment
from stepwell.adapters.local.wiring import LocalPorts
from stepwell.authoring.registry import Registry
from stepwell.core.definitions import WorkflowDefinition
from stepwell.core.signals import StreamKey
from stepwell.testing.facts import gather_lists, gather_run, gather_stream, streams_of
from stepwell.testing.laws import check_deployment
from stepwell.testing.local_facts import all_local_facts

T = TypeVar("T")


def check_local(local: LocalPorts, registry: Registry) -> None:
    """All laws, on all runs of a local file."""
    lists, facts = _at_once(all_local_facts(local))
    check_deployment(lists, facts, registry.workflow)


def _at_once(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that waits for nothing, also where a loop is running."""
    try:
        work.send(None)
    except StopIteration as done:
        found: T = done.value
        return found
    raise AssertionError("a local port waits")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """What is on its way in a deployment on AWS: bodies of messages, dead ones included.

    `timers` are those of schedules and of messages that are kept back until then, `signals` those
    of stream runs.
    """

    runs: Sequence[str] = ()
    attempts: Sequence[str] = ()
    timers: Sequence[str] = ()
    signals: Sequence[str] = ()


async def check_aws(
    aws: AwsDeployment,
    sent: Sent,
    workflow_of: Callable[[str], WorkflowDefinition | None],
) -> None:
    """All laws, on all runs of a deployment on AWS."""
    store, table = aws.store, aws.table
    pages = table.client.get_paginator("scan").paginate(TableName=table.name)
    items = [item for page in pages for item in page["Items"]]
    keys = [item["pk"]["S"] for item in items if _is_header(item)]
    facts = [
        await gather_run(
            store,
            run_id,
            blobs=aws.blobs,
            timer=min((each["due"] for each in _of(run_id, sent.timers)), default=None),
            attempts=frozenset(each["order"] for each in _of(run_id, sent.attempts)),
            in_queue=any(True for _ in _of(run_id, sent.runs)),
        )
        for run_id in (unquote(key.removeprefix("R#")) for key in keys)
    ]
    busy = {_stream_of(body) for body in sent.signals}
    streams = [
        await gather_stream(aws.ports.streams, key, quiet=key not in busy)
        for key in sorted({*_streams_in(items), *streams_of(facts)})
    ]
    check_deployment(await gather_lists(store), facts, workflow_of, streams=streams)


def _streams_in(items: Sequence[Mapping[str, Any]]) -> Iterator[StreamKey]:
    for item in items:
        kind, _, names = item["pk"]["S"].partition("#")
        if kind == "T":
            stream, run = names.split("#")
            yield StreamKey(unquote(stream), unquote(run))


def _stream_of(body: str) -> StreamKey | None:
    """The stream run of a signal, also of one for later."""
    with suppress(ValueError):
        return load_signal_body(body).key
    return None


def _is_header(item: Mapping[str, Any]) -> bool:
    return bool(item["pk"]["S"].startswith("R#") and item["sk"]["S"] == HEADER)


def _of(run_id: str, bodies: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The messages of a run; what is no message is nobody's."""
    for body in bodies:
        with suppress(ValueError):
            message = json.loads(body)
            if isinstance(message, dict) and message.get("run_id") == run_id:
                yield message
