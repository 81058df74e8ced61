"""Answering hooks from outside: a token leads to a row, and the row takes one decision.

An answer is sent to the run before its row is decided: whoever dies in between has sent a message
that is sufficient, and the turn decides the row.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from stepwell.authoring.checkpoints import checkpoint_type
from stepwell.core.answers import decision_id, problems
from stepwell.core.decide import answer, closing, expiry
from stepwell.core.ids import check_note
from stepwell.core.messages import HookDecided, TimerDue
from stepwell.core.payload import codec
from stepwell.core.records import HookRow, HookStatus, Millis
from stepwell.core.tokens import Keyring
from stepwell.engine.ports import Page, Ports
from stepwell.engine.values import Values
from stepwell.errors import (
    DefinitionError,
    HookAlreadyDecided,
    HookExpired,
    HookNotFound,
    PayloadRejected,
)


@dataclass(frozen=True, slots=True)
class PendingHook:
    """A hook that waits for an answer. `token` is what `resume_hook` takes; treat it as a secret.

    It is empty when the key that signs it is not in the keyring any more.
    """

    run_id: str
    hook_id: str
    name: str
    step: str | None
    token: str = field(repr=False)
    created_at: Millis
    expires_at: Millis | None
    due_at: Millis | None
    schema: str | None
    question: str | None = None


@dataclass(frozen=True, slots=True)
class Resumed:
    """An answer that was taken. `repeated` says that the same one was taken before."""

    run_id: str
    hook_id: str
    decision_id: str
    repeated: bool


class Answering:
    """The hooks of one deployment, as those see them who answer. See `Client`."""

    def __init__(self, ports: Ports, keyring: Keyring, values: Values) -> None:
        self._ports = ports
        self._keyring = keyring
        self._values = values

    async def pending(
        self, *, run_id: str | None, limit: int, cursor: str | None
    ) -> Page[PendingHook]:
        """Hooks that wait for an answer, oldest first, with their tokens."""
        page = await self._ports.store.list_hooks(run_id=run_id, limit=limit, cursor=cursor)
        return Page(items=tuple(self._pending(row) for row in page.items), cursor=page.cursor)

    async def find(self, token: str) -> HookRow:
        """The hook of a token, as it stands. Raises `InvalidToken`, `HookNotFound`."""
        run_id, hook_id = self._keyring.read(token)
        row = await self._ports.store.get_hook(run_id, hook_id)
        if row is None:
            raise _deleted()
        return row

    async def answer(self, token: str, payload: Any, actor: str | None) -> Resumed:
        """Answer a hook, with the errors of `Client.resume_hook`."""
        check_note("actor", actor)
        row = await self.find(token)
        carried = codec(checkpoint_type(payload, None), f"answer to hook {row.hook_id!r}")
        text = carried.encode(payload)
        if row.status is not HookStatus.PENDING:
            return _answered(row, text, repeated=True)
        standing = (
            await self._left_open(row)
            or await self._expired(row)
            or await self._decided(row, text, actor)
        )
        if standing is None:
            raise _deleted()
        return _answered(standing, text, repeated=False)

    def _pending(self, row: HookRow) -> PendingHook:
        return PendingHook(
            run_id=row.run_id,
            hook_id=row.hook_id,
            name=row.name,
            step=row.step,
            token=self._token(row),
            created_at=row.created_at,
            expires_at=row.expires_at,
            due_at=row.due_at,
            schema=row.schema,
            question=row.question,
        )

    def _token(self, row: HookRow) -> str:
        try:
            return self._keyring.token(row.key_id, row.run_id, row.hook_id)
        except DefinitionError:
            return ""

    async def _left_open(self, row: HookRow) -> HookRow | None:
        """Close what a run that has ended left open, as a turn that was overtaken may."""
        header = await self._ports.store.get_header(row.run_id)
        if header is None:
            raise _deleted()
        if not header.status.terminal:
            return None
        at = max(self._ports.clock.now(), header.updated_at)
        standing = await self._ports.store.decide_hook(row.run_id, row.hook_id, closing(at))
        if standing is None:
            raise _deleted()
        return standing

    async def _expired(self, row: HookRow) -> HookRow | None:
        """Win an overdue row over to EXPIRED before anybody is told so by the clock alone."""
        if row.expires_at is None or row.expires_at > self._ports.clock.now():
            return None
        await self._ports.queue.send(
            TimerDue(run_id=row.run_id, wait_id=row.hook_id, arm=0, due=row.expires_at)
        )
        return await self._ports.store.decide_hook(row.run_id, row.hook_id, expiry(row))

    async def _decided(self, row: HookRow, text: str, actor: str | None) -> HookRow | None:
        """The row that stands after this answer. Raises `PayloadRejected`."""
        if row.schema is not None:
            errors = problems(row.schema, text)
            if errors:
                raise PayloadRejected(errors)
        message = HookDecided(
            run_id=row.run_id,
            hook_id=row.hook_id,
            decision_id=decision_id(row, text),
            payload=await self._values.of(row.run_id).put(text, f"answer to hook {row.name!r}"),
            decided_at=self._ports.clock.now(),
            actor=actor,
        )
        await self._ports.queue.send(message)
        return await self._ports.store.decide_hook(row.run_id, row.hook_id, answer(message))


def _deleted() -> HookNotFound:
    return HookNotFound("no such hook: its run was deleted")


def _answered(row: HookRow, text: str, *, repeated: bool) -> Resumed:
    if row.status is not HookStatus.RECEIVED:
        raise HookExpired(f"hook {row.name!r} is {row.status.lower()}: the answer came too late")
    decided = decision_id(row, text)
    if row.decision_id != decided:
        raise HookAlreadyDecided(f"hook {row.name!r} was answered otherwise before")
    return Resumed(row.run_id, row.hook_id, decided, repeated)
