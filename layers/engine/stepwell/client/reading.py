"""Reading runs: as they stand, what happened to them, what came of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from stepwell.core.attributes import Scalar
from stepwell.core.events import Event, Recorded
from stepwell.core.payload import Codec, codec
from stepwell.core.records import AttentionKind, RunHeader, RunStatus
from stepwell.core.signals import is_subscription
from stepwell.core.state import fold_commits, numbered
from stepwell.engine import map_values
from stepwell.engine.chunks import Chunks, OutputChunk
from stepwell.engine.headers import chain_of, found_run, last_link
from stepwell.engine.polling import poll
from stepwell.engine.ports import Page, Ports
from stepwell.engine.progress import MapProgress, progress_of
from stepwell.engine.selection import Selection
from stepwell.engine.values import Values
from stepwell.errors import DurationLike, ResultTimeout, RunBlocked, RunCancelled, RunFailed


class ReadingCalls:
    """The part of a client that looks at runs and changes none."""

    _ports: Ports
    _values: Values
    _chunks: Chunks

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
        page ends after so many were looked at. Subscriptions of stream runs are left out unless one
        asks for their workflow, `stream/step`, or for a note. A page may hold fewer than `limit`
        runs, even none, while it has a cursor. Raises `ValueError` on a bad one.
        """
        everything = workflow is None and attention is None

        async def read(most: int, start: str | None) -> Page[RunHeader]:
            page = await self._ports.store.list_runs(
                workflow=workflow, status=status, attention=attention, limit=most, cursor=start
            )
            shown = [each for each in page.items if not is_subscription(each.run_id)]
            return replace(page, items=tuple(shown)) if everything else page

        selection = Selection(tags, attributes or {})
        return await (read(limit, cursor) if selection.all else selection.page(read, limit, cursor))

    async def result(self, run_id: str, timeout: DurationLike | None = None) -> Any:
        """Wait for the end of a run and return its result as plain JSON; of its last link, if it
        goes on as new runs.

        Raises `RunNotFound`, `RunFailed`, `RunCancelled`; `RunBlocked` when it cannot go on with
        the code that is deployed; `ResultTimeout` after `timeout`, when the run goes on.
        """
        return await self.result_as(run_id, timeout, codec(Any, f"result of run {run_id!r}"))

    async def result_as(self, run_id: str, timeout: DurationLike | None, result: Codec) -> Any:
        """As `result`, read by the declared type of the result."""
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
