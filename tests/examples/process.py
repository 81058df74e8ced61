"""A process to be killed: `python -m tests.examples.process EXAMPLE FOLDER KIND OCCURRENCE`.

It works an example and hangs at the n-th request of a kind that a step makes outside, just after
that had its effect; with the kind "waiting" it hangs when the run waits for the n-th time, with the
kinds "before" and "after" at the n-th call of its turns to store, queue and timers. Then it says
"hanging" and waits to be killed.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import examples.outside as world
from examples.outside import Outside
from stepwell.testing import Environment
from tests.examples.given import EXAMPLES, go_on, let_fail, started


class HangingEnvironment(Environment):
    """A deployment whose process hangs where it crashes."""

    def hang(self) -> None:
        """Say so, and at what time, and wait to be killed."""
        print("hanging", self.clock.now(), flush=True)
        threading.Event().wait()

    def _replace_engine(self) -> None:
        self.hang()


class HangingOutside(Outside):
    """A world in which one request has its effect and never answers."""

    def __init__(
        self, path: Path, kind: str, occurrence: int, environment: HangingEnvironment
    ) -> None:
        super().__init__(path)
        self._kind = kind
        self._left = occurrence
        self._environment = environment

    def request(self, kind: str, key: str, what: str) -> str:
        """Do it, and hang if this is the one."""
        receipt = super().request(kind, key, what)
        if kind == self._kind:
            self._left -= 1
            if not self._left:
                self._environment.hang()
        return receipt


def main(name: str, folder: str, kind: str, occurrence: str) -> None:
    """Work the example until it hangs."""
    example, number = EXAMPLES[name], int(occurrence)
    with HangingEnvironment(path=Path(folder) / "stepwell.sqlite3", seed="first") as env:
        outside = HangingOutside(Path(folder) / "outside.sqlite3", kind, number, env)
        let_fail(world.use(outside), example)
        if kind == "before" or kind == "after":
            env.crash_at(number, kind)
        run = started(env, example)
        for waits in range(1, example.waits + 1):
            if kind == "waiting" and waits == number:
                env.hang()
            go_on(env, run, example)


if __name__ == "__main__":
    main(*sys.argv[1:])
