"""A process to be killed: `python -m tests.examples.process EXAMPLE FOLDER KIND OCCURRENCE`.

It works an example and hangs at the n-th request of a kind that a step makes outside, just after
that had its effect; with the kind "waiting" it hangs when the run waits for the n-th time. Then it
says "hanging" and waits to be killed.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import examples.outside as world
from examples.outside import Outside
from stepwell.testing import Environment
from tests.examples.given import EXAMPLES, answer_next, started


class HangingOutside(Outside):
    """A world in which one request has its effect and never answers."""

    def __init__(self, path: Path, kind: str, occurrence: int) -> None:
        super().__init__(path)
        self._kind = kind
        self._left = occurrence

    def request(self, kind: str, key: str, what: str) -> str:
        """Do it, and hang if this is the one."""
        receipt = super().request(kind, key, what)
        if kind == self._kind:
            self._left -= 1
            if not self._left:
                hang()
        return receipt


def hang() -> None:
    """Say so, and wait to be killed."""
    print("hanging", flush=True)
    threading.Event().wait()


def main(name: str, folder: str, kind: str, occurrence: str) -> None:
    """Work the example until it hangs."""
    example = EXAMPLES[name]
    world.use(HangingOutside(Path(folder) / "outside.sqlite3", kind, int(occurrence)))
    with Environment(path=Path(folder) / "stepwell.sqlite3", seed="first") as env:
        started(env, example)
        for waits in range(1, 10):
            if kind == "waiting" and waits == int(occurrence):
                hang()
            answer_next(env, example)


if __name__ == "__main__":
    main(*sys.argv[1:])
