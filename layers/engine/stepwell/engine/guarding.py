"""Entries of steps that have guards: asked before the body and after it, and they have their way.

Whatever goes wrong with a guard, the body does not run, or its result does not count: a guard that
raises, takes too long or answers what is no answer fails the step, for good.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any

from stepwell.authoring.guards import answered, shown_name
from stepwell.authoring.suspension import suspension_in
from stepwell.core.definitions import GuardDefinition
from stepwell.core.failure import describe
from stepwell.core.ids import check_note
from stepwell.engine.chains import GuardChain
from stepwell.engine.step_runner import Done, EntryOutcome, Failed, StepEntry
from stepwell.engine.threads import in_thread
from stepwell.engine.turn_context import TurnContext
from stepwell.errors import Failure, FatalError, PayloadError, StepwellError

_BLOCKED = "stepwell.errors.StepBlocked"


class _Refusal(Exception):
    """A guard did not let the step pass, or failed: the step fails with this."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class GuardedEntry(StepEntry):
    """An entry that asks guards. The step's own time begins when they have let it pass."""

    #: Whether the body has returned, and the guards after it are asked.
    _reviewing = False

    def __init__(
        self,
        turn: TurnContext,
        command: Any,
        report: Callable[[StepEntry, EntryOutcome], None],
    ) -> None:
        super().__init__(turn, command, report)
        assert turn.guards is not None
        self._guards: GuardChain = turn.guards

    def start(self) -> None:
        """Begin the entry as a task of the turn's loop; the step's own time begins later."""
        self._limit(None)
        self._begin()

    async def _body(self) -> EntryOutcome:
        try:
            async with asyncio.timeout(self._turn.settings.guard_time / 1000):
                given = await self._before()
        except _Refusal as refusal:
            return _failed(refusal)
        except TimeoutError:
            return _failed(self._slow("before"))
        if given is not None or self._over:
            return given or self._waiting()
        self._limit(self.command.step.timeout)
        outcome = await super()._body()
        if not isinstance(outcome, Done) or not self._guards.after:
            return outcome
        self._reviewing = True
        try:
            async with asyncio.timeout(self._turn.settings.guard_time / 1000):
                return await self._after(outcome)
        except _Refusal as refusal:
            return _failed(refusal)
        except TimeoutError:
            return _failed(self._slow("after"))

    def _slow(self, when: str) -> _Refusal:
        most = self._turn.settings.guard_time / 1000
        return _refusal(f"the guards {when} the step took longer than {most:g} s together")

    async def _before(self) -> EntryOutcome | None:
        """Ask the guards before the body. An outcome if they give one."""
        command = self.command
        args, kwargs = command.step.arguments.plain(command.args, command.kwargs, command.text)
        for guard in self._guards.before:
            payload = self._payload("pre_step", args=args, kwargs=kwargs)
            power, answer = await self._asked(guard, payload)
            if power == "mutate":
                args = answer.get("args", args)
                kwargs = answer.get("kwargs", kwargs)
                self._change(guard, args, kwargs)
            elif power == "replace":
                return await self._replaced(guard, answer["result"])
            elif power == "suspend":
                self._wait_for(guard, answer["reason"])
                return self._waiting()
        return None

    async def _after(self, done: Done) -> EntryOutcome:
        """Ask the guards after the body, each of what the one before has left."""
        for guard in self._guards.after:
            result = json.loads(self.command.step.result.encode(done.value))
            power, answer = await self._asked(guard, self._payload("post_step", result=result))
            if power == "replace":
                done = await self._replaced(guard, answer["result"], done)
            elif power != "observe":
                raise _refusal(
                    f"guard {shown_name(guard.name)!r}: after a step there is no power to {power}"
                )
        return done

    def _payload(self, kind: str, **more: Any) -> str:
        """What a guard is told, as text: each reads a copy of his own."""
        return json.dumps(
            {
                "type": kind,
                "run_id": self.run_id,
                "workflow": self._turn.header.workflow,
                "step": self.name,
                "key": self.step_id,
                "attempt": self.attempt,
                "entry": self.entry,
                **more,
                "inbox": dict(self.inbox),
            }
        )

    async def _asked(self, guard: GuardDefinition, payload: str) -> tuple[str, Mapping[str, Any]]:
        try:
            answer = await self._answer(guard.function, payload)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # the author's function may raise anything
            if self._is_told_to_end(error):
                raise
            raise _refusal(
                f"guard {shown_name(guard.name)!r} failed: {describe(error)}", error
            ) from None
        try:
            power, told = answered(answer)
        except ValueError as error:
            raise _refusal(f"guard {shown_name(guard.name)!r}: {error}", error) from None
        self._check_open()
        if power == "block":
            raise _refusal(str(told["reason"]))
        return power, told

    async def _answer(self, function: Callable[..., Any], payload: str) -> Any:
        if inspect.iscoroutinefunction(function):
            return await function(json.loads(payload))
        answer = await in_thread(self._turn.notifiers, lambda: function(json.loads(payload)))
        return await answer if inspect.isawaitable(answer) else answer

    def _is_told_to_end(self, error: BaseException) -> bool:
        """Whether an error ends the entry, and is none of the guard's."""
        if isinstance(error, asyncio.CancelledError):
            task = asyncio.current_task()
            return task is not None and task.cancelling() > 0
        return not self._reviewing and suspension_in(error) is not None

    def suspend(self, reason: str) -> None:
        """The body or a guard before it wants to wait; after the body it would run once more."""
        if not self._reviewing:
            super().suspend(reason)

    def _change(self, guard: GuardDefinition, args: Any, kwargs: Any) -> None:
        """Give the body other arguments; what the step is known by stays."""
        try:
            if not isinstance(args, list) or not isinstance(kwargs, dict):
                raise TypeError("args is a list, kwargs an object")
            read = self.command.step.arguments.from_plain(args, kwargs)
        except Exception as error:
            reason = f"guard {shown_name(guard.name)!r}: its arguments do not fit: {error}"
            raise _refusal(reason, error) from None
        self.command = self.command._replace(args=read[0], kwargs=read[1], text=None)

    async def _replaced(
        self, guard: GuardDefinition, result: Any, done: Done | None = None
    ) -> Done:
        # Raises what a value that does not fit raises: `PayloadError`, as of a body.
        codec = self.command.step.result
        text, value = codec.round_trip(codec.decode(_json(codec.owner, result)))
        text = await self._port(self._turn.values.put(text, f"step {self.name!r}"))
        if done is None and self.command.step.chunk is not None:
            await self._port(self._output.end())
        output = done.output if done is not None else self._position()
        return Done(text, value, output, guard.name)

    def _position(self) -> int:
        return 0 if self.command.step.chunk is None else self._output.position

    def _wait_for(self, guard: GuardDefinition, reason: str) -> None:
        try:
            check_note("the reason of a suspension", reason)
        except StepwellError as error:
            raise _refusal(f"guard {shown_name(guard.name)!r}: {error}", error) from None
        self.suspend(reason)


def _json(owner: str, value: Any) -> str:
    try:
        return json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise PayloadError(owner, "$", f"a guard gave what is no JSON: {error}") from None


def _refusal(message: str, cause: BaseException | None = None) -> _Refusal:
    told = None if cause is None else describe(cause)
    return _Refusal(Failure(type=_BLOCKED, message=message, cause=told))


def _failed(refusal: _Refusal) -> Failed:
    return Failed(FatalError(refusal.failure.message), refusal.failure, "guard")
