"""Code of recorded subscriptions, and how each came about: it must go on to fit them.

A stream step is called for each signal, and each call is replayed alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepwell import (
    FatalError,
    RetryPolicy,
    emit,
    get_checkpoint,
    get_current_signal,
    hook,
    poll_inbox,
    save_checkpoint,
    schedule_signal,
    set_attributes,
    set_result,
    sleep,
    start_child,
    step,
    step_hook,
    stream_step,
    stream_workflow,
    suspend,
    terminate,
    workflow,
)
from stepwell.client import RunHandle
from stepwell.core.definitions import StreamStepDefinition
from stepwell.core.payload import codec
from stepwell.engine.subscriptions import SNAPSHOT_EVERY
from stepwell.streams import StreamStep, acknowledge_inbox_signal
from stepwell.testing import Environment
from stepwell.testing.histories import export_history

FOLDER = Path(__file__).parent / "recorded_streams"
_ROOT = Path(__file__).parents[2]
_ONCE_MORE = RetryPolicy(max_attempts=2, initial="1m", jitter="none")


@step(name="hist.counted")
async def counted(number: int) -> int:
    return number + 1


@step(name="hist.counted_away", dispatch="worker")
async def counted_away(number: int) -> int:
    return number + 2


@step(name="hist.second_time", retry=RetryPolicy(max_attempts=1))
async def second_time(number: int) -> int:
    if number < 0:
        raise FatalError("below zero")
    return number


@step(name="hist.heard")
async def heard() -> str:
    return str(await step_hook("heard"))


@workflow(name="hist.helped")
async def helped(number: int) -> int:
    await sleep("1h")
    return number


@stream_workflow(name="hist.lab")
async def lab() -> None:
    """Its steps are what is recorded."""


@stream_step(
    stream=lab,
    signals=["measured", "looked", "asked", "broken", "over"],
    name="assistant",
    retry=_ONCE_MORE,
)
async def assistant() -> None:
    """Whatever a signal can lead to."""
    signal = await get_current_signal()
    seen: list[Any] = (await get_checkpoint()) or []
    if signal is None:
        await save_checkpoint([await counted(0)])
        return
    if signal.signal_type == "measured":
        seen.append([await counted(signal.sequence), await counted_away(signal.sequence)])
        await emit("hist.lab", "noted", {"of": signal.sequence})
        await schedule_signal("hist.lab", "noted", {"late": True}, delay="1d")
    elif signal.signal_type == "looked":
        waiting = await poll_inbox(["measured"])
        for each in waiting[:1]:
            await acknowledge_inbox_signal(each.signal_id)
        seen.append([each.sequence for each in waiting])
        set_attributes({"looked": len(waiting)})
        await suspend("somebody has to ask", resume_signals=["asked"])
    elif signal.signal_type == "asked":
        seen.append([await hook("answer"), await heard(), await start_child(helped, 3)])
        await sleep("1h")
    elif signal.signal_type == "broken":
        await counted(signal.sequence)
        await second_time(signal.payload["number"])
    else:
        await set_result(len(seen))
        await terminate()
        return
    await save_checkpoint(seen)


@stream_step(stream=lab, signals={"counted": None, "over": None}, name="counter")
def counter() -> None:
    """A `def` step that counts for so long that its log begins with a snapshot."""
    signal = get_current_signal()
    if signal is None:
        return
    seen = (get_checkpoint() or 0) + 1
    if seen > 3:
        save_checkpoint(seen)
    else:
        save_checkpoint(counted(seen) - 1)
    if signal.signal_type == "over":
        set_result(seen)
        terminate()


Script = Callable[[Environment], None]


@dataclass(frozen=True, slots=True)
class StreamRecording:
    """One subscription to record."""

    name: str
    step: StreamStep[Any]
    script: Script

    @property
    def path(self) -> Path:
        """Where it is kept."""
        return FOLDER / f"{self.name}.json"

    @property
    def definition(self) -> StreamStepDefinition:
        """The code that is replayed."""
        return self.step.definition


def _emit(env: Environment, kind: str, payload: Any = None) -> None:
    env.wait_for(env.client.emit(lab, kind, payload))
    env.run_until_idle()


def _answer(env: Environment, name: str, payload: Any) -> None:
    [found] = [each for each in env.hooks() if each.name == name]
    env.resume_hook(found.token, payload)


def everything(env: Environment) -> None:
    _emit(env, "measured")
    _emit(env, "broken", {"number": -1})
    env.wait_for(env.client.emit(lab, "measured", {}))
    env.advance("2m")
    for action in (env.client.redrive_signal, env.client.discard_signal):
        env.wait_for(action(lab, "assistant", 3, actor="Ada"))
        env.advance("2m")
    for kind in ("looked", "measured", "measured"):
        env.wait_for(env.client.emit(lab, kind, {}))
    env.run_until_idle()
    _emit(env, "asked")
    _answer(env, "answer", "yes")
    _answer(env, "heard", 4)
    env.advance("3h")
    _emit(env, "broken", {"number": 1})


def _ended(env: Environment) -> None:
    everything(env)
    _emit(env, "over")


def _long(env: Environment) -> None:
    for _ in range(SNAPSHOT_EVERY // 2 + 5):
        env.wait_for(env.client.emit(lab, "counted", {}))
    env.run_until_idle()
    _emit(env, "over")


STREAM_RECORDINGS = (
    StreamRecording("waiting", assistant, everything),
    StreamRecording("ended", assistant, _ended),
    StreamRecording("from_snapshot", counter, _long),
)


def record_stream(recording: StreamRecording) -> str:
    """Play it and export what the subscription went through."""
    with Environment(seed=recording.name, unchecked="a recording") as env:
        env.start(lab)
        env.run_until_idle()
        recording.script(env)
        standing = env.wait_for(env.client.stream(lab))
        [run_id] = [
            each.run_id for each in standing.subscriptions if each.step == recording.definition.name
        ]
        run: RunHandle[Any] = RunHandle(env.client, run_id, codec(Any, "its end"))
        text = export_history(run_id, env.history(run))
    return text.replace(f"{_ROOT}/", "")


def record_missing_streams() -> list[Path]:
    """Record what has no file yet. A file that is there is never written again."""
    written = []
    for recording in STREAM_RECORDINGS:
        if not recording.path.exists():
            recording.path.parent.mkdir(exist_ok=True)
            recording.path.write_text(record_stream(recording), encoding="utf-8")
            written.append(recording.path)
    return written
