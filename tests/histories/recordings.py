"""How each recorded history came about: a workflow, its input, and what happened to its run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepwell.authoring.decorators import Workflow
from stepwell.client import RunHandle
from stepwell.core.records import GuardChange
from stepwell.engine.inboxes import Inboxes
from stepwell.testing import Environment
from stepwell.testing.histories import export_history
from tests.histories import calls, streams
from tests.histories import workflows as w

FOLDER = Path(__file__).parent / "recorded"
_ROOT = Path(__file__).parents[2]

Script = Callable[[Environment, RunHandle[Any]], None]


@dataclass(frozen=True, slots=True)
class Recording:
    """One history to record; its file has the workflow's name."""

    workflow: Workflow[..., Any]
    args: tuple[Any, ...] = ()
    script: Script = lambda env, run: None
    crash_at: int | None = None
    down: tuple[str, ...] = ()
    #: The run that is recorded, where it is not the one that was started.
    of: str | None = None

    @property
    def path(self) -> Path:
        """Where it is kept."""
        return FOLDER / f"{self.workflow.definition.name.removeprefix('hist.')}.json"


def record(recording: Recording) -> str:
    """Run the workflow and export what it went through."""
    w.DOWN.update(recording.down)
    with Environment(seed=recording.path.stem) as env:
        if recording.crash_at is not None:
            env.crash_at(recording.crash_at)
        run = env.start(recording.workflow, *recording.args)
        env.run_until_idle()
        recording.script(env, run)
        recorded = run if recording.of is None else RunHandle(env.client, recording.of, run._result)
        text = export_history(recording.of or run.id, env.history(recorded))
    # A traceback says where the code lay; that is of no matter to a replay.
    return text.replace(f"{_ROOT}/", "")


def record_missing(recordings: tuple[Recording, ...]) -> list[Path]:
    """Record what has no file yet. A file that is there is never written again."""
    written = []
    for recording in recordings:
        if not recording.path.exists():
            recording.path.parent.mkdir(exist_ok=True)
            recording.path.write_text(record(recording), encoding="utf-8")
            written.append(recording.path)
    return written


def _answer(name: str, payload: Any) -> Script:
    def answer(env: Environment, run: RunHandle[Any]) -> None:
        first = next(hook for hook in env.hooks(run) if hook.name == name)
        env.resume_hook(first.token, payload)

    return answer


def _advance(duration: str) -> Script:
    return lambda env, run: env.advance(duration)


def _cancel(env: Environment, run: RunHandle[Any]) -> None:
    env.cancel(run, "no longer wanted")


def _put(key: str, value: Any) -> Script:
    def put(env: Environment, run: RunHandle[Any]) -> None:
        env.wait_for(env.client.put_inbox(run.id, key, value, entry_id=f"{key}-1", actor="Ada"))
        env.run_until_idle()

    return put


def _resume(env: Environment, run: RunHandle[Any]) -> None:
    env.wait_for(env.client.resume(run.id, actor="Grace"))
    env.run_until_idle()


def _replace_guards(env: Environment, run: RunHandle[Any]) -> None:
    inboxes = Inboxes(env.client._ports, env.client._values)
    env.wait_for(inboxes.resume(run.id, "Grace", GuardChange()))
    env.run_until_idle()


def _all(*scripts: Script) -> Script:
    def play(env: Environment, run: RunHandle[Any]) -> None:
        for script in scripts:
            script(env, run)

    return play


def _forked(env: Environment, run: RunHandle[Any]) -> None:
    """The run is forked where a hook is open, with another answer than was given before."""
    env.resume_hook(env.hooks(run)[0].token, "yes")
    env.advance("10m")
    edits = {each.number: "no" for each in env.history(run) if each.event.type == "HookReceived"}
    fork = env.wait_for(env.client.fork(run.id, edits=edits, fork_id="a-fork", actor="Ada"))
    env.run_until_idle()
    env.resume_hook(env.hooks(fork)[0].token, "at last")


def _mended(env: Environment, run: RunHandle[Any]) -> None:
    """The run failed in a place that was down, and is retried with mended code."""
    env.resume_hook(env.hooks(run)[0].token, "yes")
    w.DOWN.clear()
    env.retry(run)


RECORDINGS = (
    Recording(w.retried, (), _mended, down=("bank",)),
    Recording(w.forked, ("a",), _forked, of="a-fork"),
    Recording(w.steps, (3,)),
    Recording(w.retries, (), _advance("1h")),
    Recording(w.caught),
    Recording(w.failed),
    Recording(w.dawdled),
    Recording(w.gathered),
    Recording(w.grouped),
    Recording(w.as_completed, (), _advance("1h")),
    Recording(
        w.cut_off,
        (),
        _all(_advance("4m"), _answer("quick", "in time"), _answer("slow", "after all")),
    ),
    Recording(
        w.asked,
        (),
        _all(_answer("approval", {"approved": True}), _answer("note", [1, None]), _advance("3h")),
    ),
    Recording(w.raced, (), _answer("right", 1)),
    Recording(w.unnotified, (), _advance("1h")),
    Recording(
        w.reviewed,
        (),
        _all(
            _answer("feedback", "good"),
            _advance("25h"),
            _answer("ask", "violet"),
            _answer("ask", "blue"),
        ),
    ),
    Recording(w.streamed, (), _answer("heard", None)),
    Recording(w.slept, (), _advance("3h")),
    Recording(w.cancelled, (), _cancel),
    Recording(w.signalled),
    Recording(w.blocking, (["a", "bc"],), _all(_advance("3h"), _answer("answer", "late"))),
    Recording(w.interrupted, (), crash_at=4),
    Recording(w.waiting),
    Recording(
        w.dispatched,
        (),
        _all(_advance("1m"), _answer("ask", "first"), _advance("1h"), _advance("2m")),
    ),
    Recording(w.dispatched_blocking, (), _advance("1m")),
    # The process dies before it can say what came of the first attempt.
    Recording(w.dispatched_interrupted, (), _advance("1m"), crash_at=8),
    Recording(w.mapped_away, (), _all(_answer("ask", "yes"), _advance("2m"), _answer("answer", 1))),
    Recording(w.mapped, (), _all(_answer("ask", "yes"), _answer("answer", 1))),
    Recording(w.dispatched_open, (), _answer("ask", "first")),
    Recording(w.remarked, (), _all(_advance("1m"), _answer("leave", True))),
    Recording(
        w.inboxed,
        (),
        _all(
            _put("other", 1),
            _resume,
            _put("way", "right"),
            _replace_guards,
            _advance("1m"),
            _resume,
            _put("approved", "Ada"),
        ),
    ),
    Recording(w.parent, (), _advance("4h")),
    Recording(w.parent_blocking, (), _advance("2h")),
    Recording(w.hands_over),
    Recording(w.continued, (1,)),
    Recording(calls.keyed, (), _all(_advance("2h"), _advance("1h"), _answer("hist.tripled", "so"))),
    Recording(calls.conditioned, (), _advance("1d")),
    Recording(calls.undone),
    Recording(calls.undone_blocking, (), _cancel),
    Recording(streams.lab, (), lambda env, run: streams.everything(env)),
    # The process dies when the attempt is under way.
    Recording(calls.died_once, (), crash_at=3),
)
