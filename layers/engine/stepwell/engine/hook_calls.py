"""Hooks in a replay: those of the workflow, not of its steps. Pure, as `engine.replay`."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from stepwell.authoring.hooks import STEP_HOOK_TIMEOUT
from stepwell.core import events as e
from stepwell.core.commands import OpenHook
from stepwell.core.definitions import HookDefinition
from stepwell.core.ids import keyed
from stepwell.engine.asking import Asking
from stepwell.errors import HookError, HookFailed, HookTimeout, PayloadError


class HookCalls(Asking):
    """The part of a replay that is about hooks."""

    def hook(self, definition: HookDefinition, key: str | None) -> Coroutine[Any, Any, Any]:
        """Wait for a hook's decision."""
        return self._make(self._hook(definition, key), definition.name)

    async def _hook(self, definition: HookDefinition, key: str | None) -> Any:
        if self._over:
            await self._come_late()
        name = definition.name
        identity = (
            self.loop.scope().identify(name) if key is None else self._keyed_id(keyed(name, key))
        )
        identity = self._lives.hook_id(identity, None)
        if key is not None and identity in self._asked:
            raise HookError(identity, name, f"key {key!r} is used twice in this run")
        command = OpenHook(identity, definition)
        self._ask(command)
        return await self._wait_for(command)

    def _hook_received(self, event: e.HookReceived, _: Any) -> None:
        pending = self._take(event.hook, event)
        if pending is None or pending.future is None:
            return
        assert isinstance(pending.command, OpenHook)
        try:
            text = self._texts.get(event.payload, event.payload)
            pending.future.set_result(pending.command.hook.payload.decode(text))
        except PayloadError as error:
            pending.future.set_exception(error)

    def _hook_expired(self, event: e.HookExpired, _: Any) -> None:
        pending = self._take(event.hook, event)
        if pending is None or pending.future is None:
            return
        assert isinstance(pending.command, OpenHook)
        if pending.command.hook.on_timeout == "return":
            pending.future.set_result(STEP_HOOK_TIMEOUT)
        else:
            self._trail.failed(event.hook, pending.scope)
            pending.future.set_exception(HookTimeout(event.hook, event.name, "its deadline passed"))

    def _hook_failed(self, event: e.HookFailed, _: Any) -> None:
        pending = self._take(event.hook, event)
        if pending is not None and pending.future is not None:
            self._trail.failed(event.hook, pending.scope)
            pending.future.set_exception(HookFailed(event.hook, event.name, event.error))

    def _hook_closed(self, event: e.HookClosed, _: Any) -> None:
        # Code that waits for it goes on waiting: only a run that ends at a limit closes such a
        # hook, and code that were told, after a crash before the last event, might end otherwise.
        if event.hook not in self.pending and event.hook not in self._lives.kept:
            self._take(event.hook, event)
