"""Runs as callers drive them: over HTTP, and by what the deployment does by itself."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any, TypeVar

from pydantic_core import to_jsonable_python

from examples.outside import Outside
from stepwell.authoring.decorators import Workflow
from stepwell.authoring.registry import registry
from stepwell.client import PendingHook, Recorded
from stepwell.core.records import RunHeader, RunStatus
from stepwell.core.signals import StreamKey
from tests.deployed.pump import Deployment
from tests.deployed.reply import Reply
from tests.examples import given
from tests.examples.given import (
    EXAMPLES,
    SOMETIMES,
    Example,
    end_of,
    next_signal,
    to_be_answered,
    to_be_sent,
)
from tests.laws import Sent, check_aws
from tests.simulation.final import SEED, TIMES, as_read, normalise

T = TypeVar("T")

#: What is done outside, by the examples and by the small workflows.
KINDS = ("model turn", "tool run", "question", "note", "crush", "add", *SOMETIMES)
KINDS += tuple(sorted({kind for example in EXAMPLES.values() for kind in example.effects}))


@dataclass(frozen=True, slots=True)
class Final:
    """The end of a run, without what may differ from one drive of it to the next."""

    status: RunStatus
    result: str | None
    events: tuple[dict[str, Any], ...]
    output: dict[str, list[Any]]
    effects: dict[str, dict[str, str]]


def now(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine."""
    return asyncio.run(work)


def start(
    aws: Deployment, workflow: str | Workflow[..., Any], key: str | None = None, **input: Any
) -> str:
    """Start a run over HTTP; its id."""
    name = workflow if isinstance(workflow, str) else workflow.definition.name
    headers = {} if key is None else {"Idempotency-Key": key}
    reply = aws.http("POST", f"/v1/workflows/{name}/runs", {"input": input}, headers)
    assert reply.status == 202, reply
    run_id: str = reply.json["run_id"]
    return run_id


def start_example(aws: Deployment, name: str) -> str:
    """The one run of an example in this deployment.

    Guards are given by whoever has their code, which is nobody over HTTP.
    """
    example = EXAMPLES[name]
    if example.guards:
        client = aws.client.with_options(idempotency_key="one", prepare_step=example.guards)
        return now(client.start(example.workflow, **example.input)).id
    return start(aws, example.workflow, "one", **to_jsonable_python(example.input))


def drive_example(aws: Deployment, name: str) -> str:
    """Start an example, answer what it asks, let time pass, and let all come to rest."""
    example, run_id = EXAMPLES[name], start_example(aws, name)
    aws.settle()
    while not header(aws, run_id).status.terminal:
        path = f"/v1/runs/{run_id}/inbox"
        sent = len(aws.http("GET", path).json["entries"]) if example.entries else 0
        entry = to_be_sent(example, header(aws, run_id), sent)
        signal = next_signal(example, come(aws, example))
        hook = to_be_answered(example, open_hooks(aws))
        if signal is not None:
            emit(aws, signal)
        elif entry is not None:
            body = {"key": entry[0], "value": entry[1], "entry_id": entry[0]}
            assert aws.http("POST", path, body).status == 202
        elif hook is None:
            assert aws.advance_to_next(), "nothing is waited for"
        elif end_of(hook) == example.cancelled_at:
            assert aws.http("POST", f"/v1/runs/{run_id}/cancel", {}).status == 202
        else:
            reply = answer(aws, hook, example.answers[end_of(hook)])
            assert reply.status == 200, reply
        aws.settle()
    return run_id


def come(aws: Deployment, example: Example) -> dict[StreamKey, list[str]]:
    """The ids of the signals that have come to the stream runs of an example."""
    found: dict[StreamKey, list[str]] = {}
    for to in {each.to for each in example.signals}:
        signals = now(aws.client.signals(to.stream, stream_run_id=to.run))
        found[to] = [each.signal_id for each in signals]
    return found


def emit(aws: Deployment, sent: given.Sent) -> None:
    """Send a signal over HTTP."""
    body = {"type": sent.type, "payload": sent.payload or {}, "idempotency_key": sent.key}
    path = f"/v1/streams/{sent.stream}/signals?stream_run_id={sent.run}"
    reply = aws.http("POST", path, {"signals": [body]})
    assert reply.status == 202, reply


def answer_all(aws: Deployment, run_id: str, answers: Mapping[str, Any]) -> None:
    """Answer every hook of a run, by the end of its id, until none is open."""
    while hooks := open_hooks(aws, run_id):
        for hook in hooks:
            reply = answer(aws, hook, answers[hook.hook_id.partition(">")[2]])
            assert reply.status == 200, reply
        aws.settle()


def open_hooks(aws: Deployment, run_id: str | None = None) -> tuple[PendingHook, ...]:
    """The open hooks of a run, or of all, with their tokens."""
    return now(aws.client.list_hooks(run_id=run_id)).items


def answer(aws: Deployment, hook: PendingHook, payload: Any) -> Reply:
    """Answer a hook as its reviewer would."""
    return aws.http("POST", f"/hooks/{hook.token}", json.dumps(payload))


def forget(aws: Deployment) -> None:
    """Make all undone, here and outside."""
    aws.forget()
    database = sqlite3.connect(aws.functions["worker"].variables["EXAMPLES_OUTSIDE"])
    with closing(database), database:
        database.executescript("DELETE FROM requests; DELETE FROM effects")


def check(aws: Deployment) -> None:
    """All laws, on all runs; those of workflows that are no examples are not replayed."""
    bodies = {name: [m.body for m in queue.messages] for name, queue in aws.queues.by_name.items()}
    inbox = bodies.pop("InboxQueue")
    timers = [body for body in inbox if _type(body) == "timer_due"]
    others = [body for each in bodies.values() for body in each]
    attempts = [body for body in others if _type(body) == "step_attempt"]
    due = [schedule["Target"]["Input"] for schedule in aws.schedules()]
    sent = Sent(
        runs=[body for body in [*inbox, *others] if body not in (*timers, *attempts)],
        attempts=attempts,
        timers=[*timers, *(body for body in due if _type(body) == "timer_due")],
        signals=[*inbox, *others, *due],
    )
    now(check_aws(aws.aws, sent, registry.workflow))


def _type(body: str) -> Any:
    with suppress(ValueError):
        message = json.loads(body)
        return message.get("type") if isinstance(message, dict) else None


def header(aws: Deployment, run_id: str) -> RunHeader:
    """A run."""
    return now(aws.client.get(run_id))


def result(aws: Deployment, run_id: str) -> Any:
    """The result of a run that has completed, over HTTP."""
    run = aws.http("GET", f"/v1/runs/{run_id}").json
    assert run["status"] == "COMPLETED", run
    return run["result"]


def history(aws: Deployment, run_id: str) -> tuple[Recorded, ...]:
    """The events of a run."""
    return now(aws.client.history(run_id))


def final(aws: Deployment, run_id: str, world: Outside, *streams: str) -> Final:
    """What a run came to."""
    found = header(aws, run_id)
    return Final(
        status=found.status,
        result=found.result,
        events=tuple(_in_order(normalise(history(aws, run_id), {**SEED, **TIMES}))),
        output={step: as_read(now(_output(aws, run_id, step))) for step in streams},
        effects={kind: world.effects(kind) for kind in KINDS},
    )


def _in_order(events: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The events, where those that happen side by side may come in any order."""
    for _, group in groupby(events, itemgetter("type")):
        yield from sorted(group, key=repr)


async def _output(aws: Deployment, run_id: str, step: str) -> list[Any]:
    return [chunk async for chunk in aws.client.output(run_id, step)]
