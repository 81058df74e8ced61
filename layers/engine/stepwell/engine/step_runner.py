"""One entry of one step: run the body, bounded in time, to a recordable outcome.

The body runs with a `StepContext` of its own. When a hook suspends it, a flag is set besides the
exception: whatever the body does with that, the entry counts as suspended and what it returns is
dropped. When the entry is over (timed out, abandoned, suspended) its primitives raise at once, so
that a late body cannot change anything any more.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn

from stepwell.authoring.checkpoints import checkpoint_type
from stepwell.authoring.context import STEP, StepContext, never_awaited
from stepwell.authoring.decorators import Result
from stepwell.authoring.hooks import STEP_HOOK_TIMEOUT
from stepwell.authoring.suspension import suspension_in
from stepwell.core.commands import RunStep
from stepwell.core.definitions import HookDefinition
from stepwell.core.failure import describe, redact
from stepwell.core.ids import counted, keyed
from stepwell.core.inbox import Inbox
from stepwell.core.payload import codec
from stepwell.core.records import Checkpoint, Millis, Payload
from stepwell.core.signals import SentSignal, SignalDraft
from stepwell.engine import hooks
from stepwell.engine.checkpoints import standing_checkpoint, take_over
from stepwell.engine.journal import Fenced
from stepwell.engine.outbox import send_from_step
from stepwell.engine.output import Output
from stepwell.engine.ports import TransientError
from stepwell.engine.threads import in_thread
from stepwell.engine.turn_context import TurnContext
from stepwell.errors import (
    AmbiguousHook,
    DurationLike,
    Failure,
    HookError,
    HookTimeout,
    PayloadError,
    StepwellError,
    Suspended,
    UsageError,
)

#: Passes of the loop that a body gets before it is suspended: enough for branches that it has just
#: begun to come to their hooks, and for an error of one of them to come to the body.
_PASSES = 8


class Done(NamedTuple):
    """The body returned; `value` is what a replay will decode from `result`."""

    result: Payload
    value: Any
    output: int
    guard: str | None = None


class Failed(NamedTuple):
    """The attempt failed; `error` is what decides about another one."""

    error: BaseException
    failure: Failure
    reason: Literal["error", "timeout", "guard"]


class Waiting(NamedTuple):
    """The body waits for a hook, or for what `reason` says."""

    output: int
    save_id: str | None
    reason: str | None = None


class Broken(NamedTuple):
    """A port failed or the turn is a zombie: the turn must give its message back."""

    error: BaseException


_WORDS = {
    "hook": "step_hook",
    "load_checkpoint": "load_step_checkpoint",
    "save_checkpoint": "save_step_checkpoint",
    "delete_checkpoint": "delete_step_checkpoint",
}
_EAGER: dict[str, Any] = {"eager_start": True} if sys.version_info >= (3, 12) else {}

EntryOutcome = Done | Failed | Waiting | Broken


class StepEntry(StepContext):
    """An entry of a step. `report` is called once, with its outcome, on the turn's loop."""

    # What is so at first, and in most entries to the end.
    deadline: float | None = None
    task: asyncio.Task[None] | None = None
    _checkpoint_deleted = False
    _save_id: str | None = None
    _loaded_id: str | None = None
    _took_over = False
    _suspended = False
    _reason: str | None = None
    _timed_out = False
    _withdrawn = False
    _reported = False
    _broken: BaseException | None = None
    _cancel_seen = False
    _began = 0.0
    _timer: asyncio.TimerHandle | None = None

    def __init__(
        self,
        turn: TurnContext,
        command: RunStep,
        report: Callable[[StepEntry, EntryOutcome], None],
    ) -> None:
        known = turn.state.steps.get(command.id)
        self.command = command
        self.run_id = turn.run_id
        self.step_id = command.id
        self.name = command.step.name
        # A dispatched attempt was counted when it was dispatched.
        self.attempt = 1 if known is None else known.attempts + (not known.order)
        self.entry = 1 if known is None else known.entries + 1
        self.blocking = command.step.colour == "sync"
        self._turn = turn
        self._report = report
        self._loop = asyncio.get_running_loop()
        self._counts: dict[str, int] = {}
        self._emitted = 0
        self._opening: set[asyncio.Event] = set()
        self._taken: set[str] = set()
        self._answers: frozenset[str] = frozenset()
        self._made: list[Coroutine[Any, Any, Any]] = []
        self._tokens: list[str] = []

    @cached_property
    def _output(self) -> Output:
        return Output(self._turn, self.command)

    def start(self) -> None:
        """Begin the entry as a task of the turn's loop."""
        self._limit(self.command.step.timeout)
        self._begin()

    def _limit(self, timeout: Millis | None) -> None:
        """End the attempt when this time has passed from now on, or its process will end."""
        self.deadline = self._turn.ends_at
        if self._timer is not None:
            self._timer.cancel()
        if timeout is not None:
            limit = self._loop.time() + timeout / 1000
            self.deadline = limit if self.deadline is None else min(limit, self.deadline)
        if self.deadline is not None:
            self._began = self._loop.time()
            self._timer = self._loop.call_at(self.deadline, self._time_out)

    def _begin(self) -> None:
        context = contextvars.copy_context()
        context.run(STEP.set, self)
        # Where Python can, a body that never waits ends right here, without a round of the loop.
        task = asyncio.Task(self._run(), loop=self._loop, context=context, **_EAGER)
        self.task = None if task.done() else task

    async def _run(self) -> None:
        try:
            outcome = await self._outcome()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # ours: the turn must hear of it, or it would wait for ever
            outcome = Broken(error)
        self._finish(outcome)
        # Its context holds this entry: kept, the two would wait for the collector, at every step.
        self.task = None

    async def _outcome(self) -> EntryOutcome:
        try:
            outcome = await self._body()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # everything else a body raises becomes an outcome
            elsewhere = suspension_in(error)
            if elsewhere is not None:
                self.suspend(elsewhere.reason)
            outcome = Failed(error, redact(describe(error), self._tokens), "error")
        if self._broken is not None:
            return Broken(self._broken)
        if self._suspended:
            return self._waiting()
        return self._timeout() if self._timed_out else outcome

    def _finish(self, outcome: EntryOutcome) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self._reported:
            self._reported = True
            self._report(self, outcome)

    async def _body(self) -> EntryOutcome:
        step = self.command.step
        if step.colour == "async":
            args, kwargs = self.command.given()
            value = await step.function(*args, **kwargs)
        elif step.colour == "sync":
            value = await self._in_thread()
        else:
            value = await self._streamed()
        if self._over:
            return self._waiting()  # `_run` puts what really ended the entry in its place
        if value is STEP_HOOK_TIMEOUT:
            raise PayloadError(
                f"step {self.name!r}",
                "$",
                "STEP_HOOK_TIMEOUT is a mark, not a value: return something that says so",
            )
        self._refuse_forgotten()
        text, value = step.result.round_trip(value)
        if not self._turn.values.is_small(text):
            text = await self._port(self._turn.values.put(text, f"step {self.name!r}"))
        if step.chunk is None:
            return Done(text, value, 0)
        await self._port(self._output.end())
        return Done(text, value, self._output.position)

    async def _in_thread(self) -> Any:
        function = self.command.step.function
        args, kwargs = self.command.given()
        return await in_thread(self._turn.pool, lambda: function(*args, **kwargs))

    async def _streamed(self) -> Any:
        chunk_codec = self.command.step.chunk
        assert chunk_codec is not None
        result: Result[Any] | None = None
        args, kwargs = self.command.given()
        stream = self.command.step.function(*args, **kwargs)
        try:
            async for item in stream:
                self._check_open()
                if result is not None:
                    raise UsageError(f"step {self.name!r}: yield Result(...) comes last")
                if isinstance(item, Result):
                    result = item
                else:
                    await self._put_chunk(chunk_codec.encode(item))
        finally:
            await stream.aclose()
        return None if result is None else result.value

    async def _put_chunk(self, text: str) -> None:
        owner = f"output of step {self.name!r}"
        chunk = await self._port(self._turn.values.put(text, owner))
        await self._port(self._output.put(chunk))

    @property
    def _over(self) -> bool:
        return self._suspended or self._timed_out or self._withdrawn or self._broken is not None

    @property
    def context(self) -> Any:
        """The run's context, as of the step's call; each reader gets one of his own."""
        snapshot = self.command.context
        if snapshot is None:
            raise UsageError("this run has no context: declare @workflow(context=YourModel)")
        return snapshot.codec.decode(snapshot.text)

    @property
    def stream_run(self) -> str | None:
        """The stream run that the step's run owns or subscribes to."""
        return self._turn.header.stream_run

    async def emit(
        self, draft: SignalDraft, when: DurationLike | datetime | None = None
    ) -> SentSignal:
        """Emit a signal, now or at a time; the same one from every attempt of the step."""
        self._check_open()
        self._emitted += 1
        place = f"{self.step_id}>{self._emitted}"
        sent: SentSignal = await self._port(
            send_from_step(
                self._turn.ports, self._turn.values, self.run_id, draft, place, when=when
            )
        )
        return sent

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits for this attempt any more."""
        return self._timed_out or self._withdrawn or self._cancel_seen

    def _check_open(self) -> None:
        if self._over or self._reported:
            raise Suspended

    def _waiting(self) -> Waiting:
        return Waiting(self._output.position, self._save_id, self._reason)

    def _timeout(self) -> Failed:
        error = TimeoutError(self._too_long())
        return Failed(error, describe(error), "timeout")

    def _too_long(self) -> str:
        step = self.command.step
        if step.timeout is not None and self.deadline != self._turn.ends_at:
            return f"the attempt took longer than {step.timeout / 1000:g} s"
        took = (self.deadline or 0) - self._began
        advice = (
            "give the function of steps more time, or save checkpoints"
            if step.dispatch == "worker"
            else 'declare the step with dispatch="worker"'
        )
        return f"the attempt was cut off after {took:.0f} s, before its function ended: {advice}"

    def _time_out(self) -> None:
        self._timed_out = True
        self._stop(lambda: self._finish(self._timeout()))

    def withdraw(self) -> None:
        """Nobody waits for this entry any more: tell the body, drop its outcome."""
        self._withdrawn = self._reported = True
        self._stop(lambda: None)

    @property
    def checkpointed(self) -> bool:
        """Whether the step has a checkpoint, as far as this entry knows."""
        return self._save_id is not None or self._loaded_id is not None or self._took_over

    def flag_cancelled(self) -> None:
        """Let the body see, through `current.cancelled`, that its run is to be cancelled."""
        self._cancel_seen = True

    def _stop(self, abandon: Callable[[], None]) -> None:
        if self.task is None:
            return  # the body has ended
        self.task.cancel()
        if self.blocking:
            # A thread cannot be cancelled: it is left behind, and its primitives raise.
            abandon()
        else:
            self._loop.call_later(self._turn.settings.step_grace / 1000, abandon)

    def note(self, primitive: Coroutine[Any, Any, Any]) -> None:
        """A primitive was called and is to be awaited."""
        self._made.append(primitive)

    def _refuse_forgotten(self) -> None:
        if not self._made:
            return
        forgotten = [each for each in self._made if never_awaited(each)]
        for primitive in forgotten:
            primitive.close()
        if forgotten:
            raise UsageError(
                f"step {self.name!r}: {_word(forgotten[0])}(...) was called and never awaited, so it "
                "did nothing: write await before it"
            )

    async def _port(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Use a port for the body. Its failure ends the turn, whatever the body makes of it.

        What is wrong with a value is the body's to know, and is one of our errors; all others are
        those of a port that cannot do its work, such as a permission that is missing.
        """
        try:
            return await work
        except StepwellError as error:
            if not isinstance(error, TransientError | Fenced):
                raise
            self._broken = error
            raise Suspended from error
        except Exception as error:
            self._broken = error
            raise Suspended from error

    def wait(self, primitive: Coroutine[Any, Any, Any]) -> Any:
        """Block a `def` step on a primitive."""
        guarded = _caught(primitive)
        try:
            future = asyncio.run_coroutine_threadsafe(guarded, self._loop)
        except RuntimeError:
            # The loop is closed: this thread was abandoned long ago.
            guarded.close()
            primitive.close()
            raise Suspended from None
        value, error = future.result()
        if error is not None:
            raise error
        return value

    async def hook(self, definition: HookDefinition, key: str | None) -> Any:
        """Wait for a hook's decision; suspends the step if there is none yet."""
        self._check_open()
        hook_id = self._hook_id(definition.name, key)
        known = self._turn.state.hooks.get(hook_id)
        if known is None:
            await self._open(hook_id, definition)
            self._check_open()
            known = self._turn.state.hooks[hook_id]
        if known.open:
            await self._let_others_open()
            self._suspend()
        self._taken.add(hook_id)
        if known.status == "received":
            assert known.payload is not None
            text = await self._port(self._turn.values.get(known.payload))
            return definition.payload.decode(text)
        if known.status == "closed":
            raise HookError(hook_id, definition.name, "it was closed")
        if definition.on_timeout == "return":
            return STEP_HOOK_TIMEOUT
        raise HookTimeout(hook_id, definition.name, "its deadline passed")

    async def _let_others_open(self) -> None:
        """Before the entry is suspended, let other branches of the body open their hooks too.

        They would otherwise be opened only after this one is answered, or be notified twice; and
        the error of a branch that failed to open its own would be lost.
        """
        for _ in range(_PASSES):
            await asyncio.sleep(0)
            while self._opening:
                await next(iter(self._opening)).wait()
        self._check_open()

    def _suspend(self) -> NoReturn:
        self._suspended = True
        self._bound()
        raise Suspended

    def suspend(self, reason: str) -> None:
        """The body wants to wait for an input. Called from its thread."""
        if self._over or self._reported:
            return
        self._reason = reason
        self._suspended = True
        with suppress(RuntimeError):  # the loop is closed: this thread was abandoned long ago
            self._loop.call_soon_threadsafe(self._bound)

    @property
    def inbox(self) -> Mapping[str, Any]:
        """The inbox as it was when the turn began."""
        return Inbox(self._turn.state.inbox, self._turn.texts)

    @property
    def journal_dir(self) -> Path | None:
        """The folder of the local file that the run is in."""
        return self._turn.settings.journal_dir

    def _bound(self) -> None:
        """Let a body that swallows its suspension not run on for ever."""
        if self._reported:
            return
        if self._timer is not None:
            self._timer.cancel()
        grace = self._turn.settings.step_grace / 1000
        self._timer = self._loop.call_later(
            grace, self._stop, lambda: self._finish(self._waiting())
        )

    def _hook_id(self, name: str, key: str | None) -> str:
        if key is not None:
            hook_id = self._known_as(keyed(name, key))
            if hook_id in self._taken:
                raise HookError(hook_id, name, f"key {key!r} is used twice in this step")
            return hook_id
        count = self._counts.get(name, 0) + 1
        self._counts[name] = count
        hook_id = self._known_as(counted("", name, count))
        if hook_id in self._answers:
            raise AmbiguousHook(
                hook_id,
                name,
                "it was answered before the loaded checkpoint was saved, so counting from the top "
                f"is ambiguous; write step_hook({name!r}, key=...)",
            )
        return hook_id

    def _known_as(self, identity: str) -> str:
        return self._turn.state.lives.hook_id(identity, self.step_id)

    async def _open(self, hook_id: str, definition: HookDefinition) -> None:
        opened = asyncio.Event()
        self._opening.add(opened)
        try:
            await self._put_and_notify(hook_id, definition)
        finally:
            self._opening.discard(opened)
            opened.set()

    async def _put_and_notify(self, hook_id: str, definition: HookDefinition) -> None:
        turn = self._turn
        row = await self._port(hooks.put_row(turn, hook_id, definition, self.step_id))
        self._check_open()
        if hooks.record_decision(turn, row):
            return
        self._tokens.append(hooks.token_of(turn, row))
        await hooks.notify(turn, row, definition.on_created)
        if not self._over and hook_id not in turn.state.hooks:
            turn.journal.record(hooks.opened(turn, row))

    async def load_checkpoint(self, annotation: Any) -> Any:
        """The step's checkpoint, None if there is none."""
        self._check_open()
        if self._checkpoint_deleted:
            return None
        checkpoint = await self._port(self._standing_checkpoint())
        if checkpoint is None:
            return None
        self._answers = frozenset(checkpoint.answers) - self._taken
        if checkpoint.save_id not in (self._save_id, self._loaded_id):
            await self._port(self._output.resume_from(checkpoint))
            self._loaded_id = checkpoint.save_id
        text = await self._port(self._turn.values.get(checkpoint.value))
        return codec(annotation, f"checkpoint of step {self.name!r}").decode(text)

    async def _standing_checkpoint(self) -> Checkpoint | None:
        if self._turn.overtakes and not self._took_over:
            found = await take_over(self._turn, self.step_id)
            self._took_over = True
            return found
        return await standing_checkpoint(self._turn, self.step_id)

    async def save_checkpoint(self, data: Any, annotation: Any) -> None:
        """Save the step's checkpoint over the one before."""
        self._check_open()
        owner = f"checkpoint of step {self.name!r}"
        text = codec(checkpoint_type(data, annotation), owner).encode(data)
        await self._port(self._save(await self._port(self._turn.values.put(text, owner))))
        self._checkpoint_deleted = False

    async def _save(self, value: Payload) -> None:
        turn = self._turn
        save_id = turn.ports.ids.new_id()
        checkpoint = Checkpoint(
            run_id=self.run_id,
            step=self.step_id,
            # Not what is only buffered: whoever takes over from a dead turn must not be behind it.
            last_event=turn.journal.durable,
            save_id=save_id,
            saved_at=turn.ports.clock.now(),
            output=self._output.position,
            answers=tuple(sorted(self._answers | self._taken)),
            value=value,
        )
        if not await turn.ports.store.put_checkpoint(checkpoint):
            raise Fenced(f"a later turn saved the checkpoint of step {self.step_id!r}")
        self._save_id = save_id

    async def delete_checkpoint(self) -> None:
        """Leave the checkpoint out from here on."""
        self._check_open()
        self._checkpoint_deleted = True


def _word(primitive: Coroutine[Any, Any, Any]) -> str:
    """What the author called to get a primitive."""
    name = str(getattr(primitive, "__name__", "a primitive"))
    return _WORDS.get(name, name)


async def _caught(primitive: Coroutine[Any, Any, Any]) -> tuple[Any, BaseException | None]:
    try:
        return await primitive, None
    except BaseException as error:  # raised again in the thread that waits
        return None, error
