"""The client: what a caller uses of a deployment. Starts, forks and answers are here.

It needs no workflow code in its process, apart from what `start` is given. What it accepts will
happen: it sends a message that is sufficient by itself, then writes the row; whoever comes second
finds the write done and adopts it.
"""

from __future__ import annotations

import copy
import importlib
import os
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import replace
from typing import Any, ParamSpec, TypeVar, overload

from stepwell.authoring.decorators import Workflow
from stepwell.authoring.guards import Chain, declared
from stepwell.client.handles import RunHandle
from stepwell.client.inboxes import InboxCalls
from stepwell.client.operating import OperatingCalls
from stepwell.client.reading import ReadingCalls
from stepwell.client.streams import StreamCalls
from stepwell.core.definitions import WorkflowDefinition
from stepwell.core.ids import check_key, check_note
from stepwell.core.payload import codec
from stepwell.core.records import (
    Guards,
    HookRow,
    PublishedWorkflow,
)
from stepwell.engine.answering import Answering, PendingHook, Resumed
from stepwell.engine.archive import dump_archive, export_run, import_run, load_archive
from stepwell.engine.catalogue import (
    Catalogue,
    NamedStart,
    Publication,
)
from stepwell.engine.chunks import Chunks
from stepwell.engine.forks import Forks
from stepwell.engine.inboxes import Inboxes
from stepwell.engine.operating import Operating
from stepwell.engine.ports import Page, Ports
from stepwell.engine.selection import listed
from stepwell.engine.settings import Settings
from stepwell.engine.starts import StartOptions, Starts, named_with, started_with
from stepwell.engine.streaming import Streaming
from stepwell.engine.values import Values
from stepwell.errors import (
    UsageError,
    WorkflowNotFound,
)

P = ParamSpec("P")
R = TypeVar("R")
_TAG_LIMIT = 50
#: Which variable names a client, and what makes it.
_PLACES = {
    "STEPWELL_TABLE": "stepwell.adapters.aws.deployment",
    "STEPWELL_DB": "stepwell.adapters.local.environment",
}


class Client(ReadingCalls, OperatingCalls, InboxCalls, StreamCalls):
    """Works on the runs of one deployment. Safe to share between asyncio tasks."""

    def __init__(self, ports: Ports, settings: Settings) -> None:
        self._ports = ports
        self._settings = settings
        self._values = Values(ports.blobs, settings.sizes)
        self._catalogue = Catalogue(ports)
        self._answering = Answering(ports, settings.keyring, self._values)
        self._inboxes = Inboxes(ports, self._values)
        self._operating = Operating(ports)
        self._chunks = Chunks(ports, self._values)
        self._forks = Forks(ports, self._values, self._catalogue)
        self._starts = Starts(ports, self._values)
        self._streaming = Streaming(ports, self._values)
        self._options = StartOptions()

    @classmethod
    def from_env(cls) -> Client:
        """The client that the environment names.

        `STEPWELL_TABLE`, with the other variables of a deployment, names one on AWS; else
        `STEPWELL_DB` is the file of a local engine. Raises `UsageError` when it names none.
        """
        for variable, module in _PLACES.items():
            if os.environ.get(variable):
                # By name: a client must not import adapters, which come with their dependencies.
                client: Client = importlib.import_module(module).client_from_env()
                return client
        raise UsageError(
            "the environment names no deployment: set STEPWELL_TABLE and the other variables of "
            "one on AWS, or STEPWELL_DB to the file of a local engine, such as the command line's "
            ".stepwell/stepwell.db"
        )

    def with_options(
        self,
        *,
        idempotency_key: str | None = None,
        stream_run_id: str | None = None,
        tags: tuple[str, ...] | None = None,
        context: Any = None,
        prepare_step: Chain | None = None,
        review_step: Chain | None = None,
    ) -> Client:
        """A client whose `start` uses these, apart from the workflow's own arguments.

        What is left out stays as it is with this client. With an idempotency key the run id follows
        from workflow and key: starting again with the same input gives the same run, running or
        ended. Of a stream workflow `stream_run_id` is that key: it names the stream run, "default"
        where none is given. `context` is what the run's `current.context` is at first, where its
        workflow declares one. `prepare_step` and `review_step` are the guards that are asked before
        and after each step, declared with `@step_guard`; none are an empty list. Raises
        `DefinitionError` on a key that is empty or too long, `UsageError` on too many or too long
        tags, and on a guard that is not declared.
        """
        known = self._options
        if stream_run_id is not None:
            idempotency_key = stream_run_id
        if idempotency_key is not None:
            check_key("idempotency", idempotency_key)
        for tag in listed(tags or ()):
            check_note("tag", tag)
        if len(tags or ()) > _TAG_LIMIT:
            raise UsageError(f"tags: at most {_TAG_LIMIT}, not {len(tags or ())}")
        return self._with(
            StartOptions(
                idempotency_key=known.idempotency_key
                if idempotency_key is None
                else idempotency_key,
                tags=known.tags if tags is None else tags,
                context=known.context if context is None else context,
                guards=declared(prepare_step, review_step, known.guards),
            )
        )

    def with_guards(self, guards: Guards | None) -> Client:
        """A client whose `start` gives runs these guards, by the names that a run keeps."""
        return self._with(replace(self._options, guards=guards))

    def _with(self, options: StartOptions) -> Client:
        made = copy.copy(self)
        made._options = options
        return made

    @overload
    async def start(
        self,
        workflow: Workflow[P, Coroutine[Any, Any, R]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> RunHandle[R]: ...
    @overload
    async def start(
        self, workflow: Workflow[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> RunHandle[R]: ...
    async def start(self, workflow: Workflow[Any, Any], /, *args: Any, **kwargs: Any) -> Any:
        """Start a run with these arguments; durable when it returns.

        Raises `TypeError` or `PayloadError` on arguments, or a context, that do not fit,
        `IdempotencyConflict` when the key was used with another input.
        """
        if not isinstance(workflow, Workflow):
            raise UsageError(f"start takes a @workflow, not {workflow!r}")
        definition = workflow.definition
        arguments = definition.arguments
        checked = NamedStart(
            definition.version,
            arguments.encode(args, kwargs),
            arguments.digest(args, kwargs),
            stream=definition.stream,
        )
        start = started_with(checked, definition, self._options.context)
        run_id, repeated = await self._start(definition.name, start)
        return RunHandle(self, run_id, definition.result, repeated=repeated)

    async def start_named(
        self, workflow: str, input: Mapping[str, Any] | None = None
    ) -> RunHandle[Any]:
        """Start a run without its code: arguments by name, as JSON; durable when it returns.

        The input is checked against what is published of the workflow. While nothing at all is
        published, any start is accepted and the worker decides. With an idempotency key it is the
        same start as one with the code, as far as the schema tells; where it does not, as with a
        date spelt otherwise, it is another input.

        Raises `WorkflowNotFound`, `InputRejected`, `PayloadError`, and `IdempotencyConflict` when
        the key was used with another input.
        """
        checked = await self._catalogue.check(workflow, input or {})
        start = named_with(checked, workflow, self._options.context)
        run_id, repeated = await self._start(workflow, start)
        result = codec(Any, f"result of run {run_id!r}")
        return RunHandle(self, run_id, result, repeated=repeated)

    async def _start(self, workflow: str, start: NamedStart) -> tuple[str, bool]:
        return await self._starts.start(workflow, start, self._options)

    async def publish(
        self, definitions: Iterable[WorkflowDefinition], *, wake_all: bool = False
    ) -> Publication:
        """Tell the deployment of these workflows, so that they can be started without their code.

        Runs that are blocked get a wake-up when what is published of their workflow has changed;
        with `wake_all` in any case, for a change inside a function does not show in what is
        published.
        """
        return await self._catalogue.publish(definitions, wake_all=wake_all)

    async def get_definition(self, workflow: str) -> PublishedWorkflow:
        """What is published of a workflow. May lag. Raises `WorkflowNotFound`."""
        found = await self._ports.store.get_definition(workflow)
        if found is None:
            raise WorkflowNotFound(workflow)
        return found

    async def list_definitions(
        self, *, limit: int = 50, cursor: str | None = None
    ) -> Page[PublishedWorkflow]:
        """What is published, by name, a page at a time. Raises `ValueError` on a bad cursor."""
        return await self._ports.store.list_definitions(limit=limit, cursor=cursor)

    async def export(self, run_id: str) -> str:
        """A run as the text of a file: header, history, hooks and inbox, with values in place.

        It holds whatever the run held: do not give away what must stay secret. Raises
        `RunNotFound`.
        """
        return dump_archive(await export_run(self._ports, self._values, run_id))

    async def import_run(self, text: str) -> str:
        """Take in a run that `export` gave. Returns its id.

        One that has not ended is paused, so that nothing of it is done here unless it is resumed.
        Importing the same once more is no error. Raises `RunExists`, `ValueError`.
        """
        archive = load_archive(text)
        await import_run(self._ports, self._values, archive)
        return archive.run_id

    async def list_hooks(
        self, *, run_id: str | None = None, limit: int = 50, cursor: str | None = None
    ) -> Page[PendingHook]:
        """Hooks that wait for an answer, oldest first, with their tokens."""
        return await self._answering.pending(run_id=run_id, limit=limit, cursor=cursor)

    async def get_hook(self, token: str) -> HookRow:
        """The hook of a token, as it stands; a large answer stays a reference. Decides nothing.

        Raises `InvalidToken`, `HookNotFound`.
        """
        return await self._answering.find(token)

    async def resume_hook(
        self, token: str, payload: Any = None, *, actor: str | None = None
    ) -> Resumed:
        """Answer a hook. The first decision wins; the same answer again is no error.

        Raises `InvalidToken`, `HookNotFound`, `PayloadRejected` (the hook stays open),
        `HookAlreadyDecided`, `HookExpired`.
        """
        return await self._answering.answer(token, payload, actor)

    async def fork(
        self,
        run_id: str,
        *,
        at: int | None = None,
        input: Mapping[str, Any] | None = None,
        edits: Mapping[int, Any] | None = None,
        fork_id: str | None = None,
        idempotency_key: str | None = None,
        actor: str | None = None,
    ) -> RunHandle[Any]:
        """Begin a new run with what another one has come to; that one is left as it is.

        Its events up to number `at` are copied, by default all but the end. What was still open
        there begins anew: steps that had not ended, hooks, with new tokens, timers, children. A
        cancel is not copied, nor what came after it.
        `edits` gives other values, by event number, for results of steps and for answers; `input`
        replaces the arguments. The code goes on from there; where it does not fit, the fork is
        blocked as any run. Durable when it returns. The same `fork_id` or key again, for the same
        fork, is the same run.

        Raises `RunNotFound`; `ForkRefused` on a place or an edit that cannot be; `InputRejected`,
        `PayloadError`; `IdempotencyConflict` when the id or key is another run's.
        """
        forked, repeated = await self._forks.fork(
            run_id,
            at=at,
            input=input,
            edits=edits or {},
            run_id=fork_id,
            key=idempotency_key,
            actor=actor,
            tags=self._options.tags,
        )
        return RunHandle(self, forked, codec(Any, f"result of run {forked!r}"), repeated=repeated)


async def resume_hook(token: str, payload: Any = None, *, actor: str | None = None) -> Resumed:
    """Answer a hook with the client that the environment names; see `Client.resume_hook`."""
    return await Client.from_env().resume_hook(token, payload, actor=actor)
