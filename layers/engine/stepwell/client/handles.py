"""Handles of runs."""

from __future__ import annotations

from typing import Generic, TypeVar

from stepwell.client.reading import ReadingCalls
from stepwell.core.events import Recorded
from stepwell.core.payload import Codec
from stepwell.core.records import RunHeader
from stepwell.errors import DurationLike

R = TypeVar("R")


class RunHandle(Generic[R]):
    """A run, as the client sees it. `repeated`: the start that gave it found it already there."""

    def __init__(
        self, client: ReadingCalls, run_id: str, result: Codec, *, repeated: bool = False
    ) -> None:
        self.id = run_id
        self.repeated = repeated
        self._client = client
        self._result = result

    async def result(self, timeout: DurationLike | None = None) -> R:
        """Wait for the end and return the result; see `Client.result`."""
        value: R = await self._client.result_as(self.id, timeout, self._result)
        return value

    async def get(self) -> RunHeader:
        """The run as it stands."""
        return await self._client.get(self.id)

    async def history(self) -> tuple[Recorded, ...]:
        """The run's events."""
        return await self._client.history(self.id)

    def __repr__(self) -> str:
        return f"<run {self.id!r}>"
