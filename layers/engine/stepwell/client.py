"""The client: start runs, look at them, wait for them, answer their hooks.

It needs no workflow code in its process, apart from what `start` is given. What it accepts will
happen: it sends a message that is sufficient by itself, then writes the row; whoever comes second
finds the write done and adopts it.
"""

from __future__ import annotations

import copy
import importlib
import os
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, ParamSpec, TypeVar, overload

from stepwell.authoring.decorators import Workflow
from stepwell.authoring.guards import Chain, declared, guard_change
from stepwell.core.attributes import Scalar
from stepwell.core.definitions import WorkflowDefinition
from stepwell.core.events import Event, Recorded
from stepwell.core.ids import check_key, check_note
from stepwell.core.messages import DeleteRun, Wake
from stepwell.core.payload import Codec, codec
from stepwell.core.records import (
    AttentionKind,
    GuardChange,
    Guards,
    HookRow,
    PublishedWorkflow,
    RunHeader,
    RunStatus,
)
from stepwell.core.state import fold_commits, numbered
from stepwell.engine import map_values
from stepwell.engine.answering import Answering, PendingHook, Resumed
from stepwell.engine.archive import dump_archive, export_run, import_run, load_archive
from stepwell.engine.catalogue import (
    Catalogue,
    NamedStart,
    Publication,
)
from stepwell.engine.chunks import Chunks, OutputChunk
from stepwell.engine.control import send_kept
from stepwell.engine.forks import Forks
from stepwell.engine.headers import chain_of, found_run, last_link
from stepwell.engine.inboxes import InboxCalls, InboxEntry, Inboxes
from stepwell.engine.operating import Operating, OperatingCalls
from stepwell.engine.polling import poll
from stepwell.engine.ports import Page, Ports
from stepwell.engine.progress import MapProgress, progress_of
from stepwell.engine.selection import Selection, listed
from stepwell.engine.settings import Settings
from stepwell.engine.starts import StartOptions, Starts, named_with, started_with
from stepwell.engine.stream_calls import NewSignal, StreamCalls
from stepwell.engine.streaming import Streaming
from stepwell.engine.values import Values
from stepwell.errors import (
    DurationLike,
    ResultTimeout,
    RunBlocked,
    RunCancelled,
    RunFailed,
    RunNotEnded,
    RunNotFound,
    UsageError,
    WorkflowNotFound,
)

__all__ = [
    "Client",
    "InboxEntry",
    "MapProgress",
    "NewSignal",
    "OutputChunk",
    "PendingHook",
    "Recorded",
    "Resumed",
    "RunHandle",
    "resume_hook",
]

P = ParamSpec("P")
R = TypeVar("R")
_TAG_LIMIT = 50
#: Which variable names a client, and what makes it.
_PLACES = {
    "STEPWELL_TABLE": "stepwell.adapters.aws.deployment",
    "STEPWELL_DB": "stepwell.adapters.local.environment",
}


class RunHandle(Generic[R]):
    """A run, as the client sees it. `repeated`: the start that gave it found it already there."""

    def __init__(
        self, client: Client, run_id: str, result: Codec, *, repeated: bool = False
    ) -> None:
        self.id = run_id
        self.repeated = repeated
        self._client = client
        self._result = result

    async def result(self, timeout: DurationLike | None = None) -> R:
        """Wait for the end and return the result; see `Client.result`."""
        value: R = await self._client._result(self.id, timeout, self._result)
        return value

    async def get(self) -> RunHeader:
        """The run as it stands."""
        return await self._client.get(self.id)

    async def history(self) -> tuple[Recorded, ...]:
        """The run's events."""
        return await self._client.history(self.id)

    def __repr__(self) -> str:
        return f"<run {self.id!r}>"


class Client(InboxCalls, OperatingCalls, StreamCalls):
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
            "one on AWS, or STEPWELL_DB to the file of a local engine; or make a client"
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

    async def get(self, run_id: str) -> RunHeader:
        """The run as it stands: status, input, result, what it waits for. Raises `RunNotFound`."""
        header = await self._ports.store.get_header(run_id)
        header = found_run(header, run_id)
        result = None if header.result is None else await self._values.get(header.result)
        return replace(header, input=await self._values.get(header.input), result=result)

    async def chain(self, run_id: str) -> tuple[RunHeader, ...]:
        """The runs of a chain, the first one first: which go on for one another as new runs.

        One that never did is a chain of its own; links that were deleted end it. Large values stay
        references. Raises `RunNotFound`.
        """
        return await chain_of(self._ports, run_id)

    async def history(
        self, run_id: str, *, after: int = 0, limit: int | None = None
    ) -> tuple[Recorded, ...]:
        """The run's events in order, values as JSON text; those numbered above `after`.

        Raises `RunNotFound`.
        """
        if after < 0 or (limit is not None and limit < 1):
            raise ValueError(f"after must be at least 0 and limit 1, not {after} and {limit}")
        rows = await self._ports.store.load(run_id)
        found_run(rows.header, run_id)
        wanted = [each for each in numbered(rows.commits) if each[0] > after]
        wanted = wanted if limit is None else wanted[:limit]
        return tuple([Recorded(n, await self._with_values(event)) for n, event in wanted])

    async def progress(self, run_id: str) -> tuple[MapProgress, ...]:
        """How far the maps of a run have come. Raises `RunNotFound`."""
        rows = await self._ports.store.load(run_id)
        found_run(rows.header, run_id)
        state = fold_commits(rows.commits)
        return await progress_of(self._ports.maps, run_id, state)

    async def _with_values(self, event: Event) -> Event:
        event = await map_values.whole(self._values, event)
        for name in ("input", "result", "payload"):
            value = getattr(event, name, None)
            if value is not None:
                changes: dict[str, Any] = {name: await self._values.get(value)}
                return replace(event, **changes)
        return event

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

    async def list_runs(
        self,
        *,
        workflow: str | None = None,
        status: RunStatus | None = None,
        attention: AttentionKind | None = None,
        tags: Sequence[str] = (),
        attributes: Mapping[str, Scalar] | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[RunHeader]:
        """Runs, newest first, a page at a time; large values stay references, `get` resolves them.

        `attention` is the note that calls for somebody to look. With `tags` or `attributes` only
        runs that have all of them: these are picked from the others, for no index holds them, and a
        page ends after so many were looked at. A page may hold fewer than `limit` runs, even none,
        while it has a cursor. Raises `ValueError` on a bad one.
        """

        async def read(most: int, start: str | None) -> Page[RunHeader]:
            return await self._ports.store.list_runs(
                workflow=workflow, status=status, attention=attention, limit=most, cursor=start
            )

        selection = Selection(tags, attributes or {})
        return await (read(limit, cursor) if selection.all else selection.page(read, limit, cursor))

    async def result(self, run_id: str, timeout: DurationLike | None = None) -> Any:
        """Wait for the end of a run and return its result as plain JSON; of its last link, if it
        goes on as new runs.

        Raises `RunNotFound`, `RunFailed`, `RunCancelled`; `RunBlocked` when it cannot go on with
        the code that is deployed; `ResultTimeout` after `timeout`, when the run goes on.
        """
        return await self._result(run_id, timeout, codec(Any, f"result of run {run_id!r}"))

    async def _result(self, run_id: str, timeout: DurationLike | None, result: Codec) -> Any:
        header: RunHeader | None = None
        link = run_id

        async def ended() -> bool:
            nonlocal header, link
            # From the link that was reached last: a chain only grows.
            header = found_run(await last_link(self._ports, link), link)
            link = header.run_id
            over = header.status.terminal and header.continued_to is None
            return over or (header.attention is not None and not header.paused)

        if not await poll(ended, timeout):
            raise ResultTimeout(run_id, f"has not ended within {timeout}; it goes on")
        assert header is not None
        return await self._outcome(header, result)

    async def _outcome(self, header: RunHeader, result: Codec) -> Any:
        if header.status is RunStatus.COMPLETED:
            assert header.result is not None
            return result.decode(await self._values.get(header.result))
        if header.status is RunStatus.FAILED:
            assert header.error is not None
            raise RunFailed(header.run_id, header.error)
        if header.status is RunStatus.CANCELLED:
            history = await self.history(header.run_id)
            raise RunCancelled(header.run_id, getattr(history[-1].event, "reason", None))
        assert header.attention is not None
        raise RunBlocked(header.run_id, header.attention.reason)

    def output(
        self, run_id: str, step: str, *, after: int = 0, follow: bool = True
    ) -> AsyncIterator[OutputChunk]:
        """The streamed output of a step, by its id in the run, from behind position `after`.

        With `follow` it goes on until the step or the run has ended. Raises `RunNotFound`.
        """
        return self._chunks.read(run_id, step, after=after, follow=follow)

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

    async def resume(
        self,
        run_id: str,
        *,
        prepare_step: Chain | None = None,
        review_step: Chain | None = None,
        actor: str | None = None,
    ) -> None:
        """Let a paused run go on; one that is not paused, look again for input.

        The end of a pause wakes the run; a note that it had before, that it is blocked or stuck,
        stands again. Otherwise steps and workflows that raised `Suspend` look again, whether there
        is input or not; a run that waits for nothing of that kind goes on as it is.

        With guards, none being an empty list, the run's steps have these from here on; those before
        or after a step that are not given stay as the run has them. Raises `RunNotFound`,
        `RunEnded`, and `UsageError` on a guard that is not declared.
        """
        await self.go_on(run_id, guard_change(prepare_step, review_step, None), actor=actor)

    async def go_on(
        self, run_id: str, change: GuardChange | None, *, actor: str | None = None
    ) -> None:
        """As `resume`; guards by the names that a run keeps."""
        if not await self._operating.resume(run_id) or change is not None:
            await self._inboxes.resume(run_id, actor, change)

    async def retry(
        self,
        run_id: str,
        *,
        prepare_step: Chain | None = None,
        review_step: Chain | None = None,
        actor: str | None = None,
    ) -> None:
        """Let a run that failed or was cancelled go on, as the same run; durable when it returns.

        What had succeeded stays and is not run again. What ended the run is done anew, and so is
        what the code asked for after that; steps that had not ended begin anew. The code may have
        been mended in between. Guards are as those of `resume`. Raises `RunNotFound`,
        `RunNotEnded`, `NotRetryable`, and `UsageError` on a guard that is not declared.
        """
        await self.begin_again(run_id, guard_change(prepare_step, review_step, None), actor=actor)

    async def begin_again(
        self, run_id: str, change: GuardChange | None, *, actor: str | None = None
    ) -> None:
        """As `retry`; guards by the names that a run keeps."""
        await self._operating.retry(run_id, actor, change)

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

    async def delete(self, run_id: str, *, actor: str | None = None) -> None:
        """Delete a run that has ended, with its history, its hooks, its output and its values.

        A worker does it; when this returns it will be done. What stays for 30 days is that there
        was such a run: until then its id and its idempotency key cannot be used again. Deleting it
        once more changes nothing. Runs that were forked from it, and its parent, keep what they
        have of it. Raises `RunNotFound`, `RunNotEnded`.
        """
        check_note("actor", actor)
        header = await self._ports.store.get_header(run_id)
        if header is None:
            raise RunNotFound(run_id)
        if not header.status.terminal:
            raise RunNotEnded(run_id)
        await self._ports.queue.send(
            DeleteRun(
                run_id=run_id,
                request_id=self._ports.ids.new_id(),
                after=header.last_event,
                actor=actor,
            )
        )

    async def wake(self, run_id: str) -> None:
        """Have a run looked at again, as after a deployment of code that fits. Never harmful.

        A stuck run gets the message that could not be handled once more. Raises `RunNotFound`.
        """
        header = await self._ports.store.get_header(run_id)
        header = found_run(header, run_id)
        await self._ports.queue.send(Wake(run_id=run_id, cause=self._ports.ids.new_id()))
        # Second: should it fail again, the note about it is the last word on the header.
        await send_kept(self._ports, header.note)


async def resume_hook(token: str, payload: Any = None, *, actor: str | None = None) -> Resumed:
    """Answer a hook with the client that the environment names; see `Client.resume_hook`."""
    return await Client.from_env().resume_hook(token, payload, actor=actor)
