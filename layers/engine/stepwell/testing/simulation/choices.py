"""Who decides what happens next in a simulation: a seed, a script, or all of them in turn.

Each choice is made among actions, the first of which is what happens when nothing goes wrong. The
indices chosen, with the scenario, are the whole of what happened: `Chosen` plays them again.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol


class Option(Protocol):
    """Something that may happen. `weight` says how often, beside others, when chance decides."""

    @property
    def label(self) -> str:
        """What it is, unique among the options of one choice."""

    @property
    def weight(self) -> float:
        """1 for what happens in any run."""

    @property
    def touches(self) -> frozenset[str] | None:
        """What it changes, and what it reads as `"?…"`; None when that cannot be told.

        Two that touch nothing in common, but by reading, lead to the same state in either order.
        """


class Choices(Protocol):
    """Decides."""

    def choose(self, options: Sequence[Option], state: Callable[[], Hashable]) -> int:
        """The index of what happens next. `state` gives a value that is equal for equal states."""


class Pruned(Exception):
    """All that could come from here on has been seen."""


@dataclass(slots=True)
class FirstOf:
    """Nothing goes wrong."""

    def choose(self, options: Sequence[Option], state: Callable[[], Hashable]) -> int:
        """The first."""
        del options, state
        return 0


@dataclass(slots=True)
class Seeded:
    """Chance decides; the same seed decides alike."""

    seed: int | str
    _random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._random = random.Random(f"choices/{self.seed}")

    def choose(self, options: Sequence[Option], state: Callable[[], Hashable]) -> int:
        """One of them, by weight."""
        del state
        weights = [option.weight for option in options]
        return self._random.choices(range(len(options)), weights)[0]


@dataclass(slots=True)
class Chosen:
    """Plays choices again, then takes the first."""

    indices: Sequence[int]
    _at: int = 0

    def choose(self, options: Sequence[Option], state: Callable[[], Hashable]) -> int:
        """The next one of the indices."""
        del options, state
        self._at += 1
        return self.indices[self._at - 1] if self._at <= len(self.indices) else 0


@dataclass(slots=True, eq=False)
class _Node:
    """One choice on the present path. What is in `sleep` has been seen in another order."""

    options: Sequence[Option]
    sleep: frozenset[str]
    at: int = -1

    def advance(self) -> bool:
        """Go to the next option that is to be tried. Whether there is one."""
        self.at += 1
        while self.at < len(self.options) and self.options[self.at].label in self.sleep:
            self.at += 1
        return self.at < len(self.options)

    def sleep_after(self) -> frozenset[str]:
        """What needs no trying after the present option, for it was tried before that."""
        chosen = self.options[self.at]
        tried = {each.label for each in self.options[: self.at]} | self.sleep
        return frozenset(
            each.label for each in self.options if each.label in tried and _apart(each, chosen)
        )


@dataclass(slots=True)
class Explorer:
    """All choices in turn, up to a depth: go through `runs`, and use this in each of them.

        explorer = Explorer(depth=12)
        for _ in explorer.runs():
            with suppress(Pruned):
                simulate(explorer)

    Beyond the depth `beyond` decides. Orders that cannot make a difference, and states that were
    seen before, are pruned. `exhausted` says that the tree was gone through to its end, without a
    limit that was reached; `cut` that some runs went on beyond the depth.
    """

    depth: int
    limit: int | None = None
    beyond: Choices = field(default_factory=FirstOf)
    explored: int = 0
    pruned: int = 0
    exhausted: bool = False
    cut: bool = False
    _path: list[_Node] = field(default_factory=list)
    _at: int = 0
    _seen: dict[int, list[tuple[int, frozenset[str]]]] = field(default_factory=dict)

    def runs(self) -> Iterator[int]:
        """One number for each run that is to be made."""
        while self.limit is None or self.explored + self.pruned < self.limit:
            self._at = 0
            before = self.pruned
            yield self.explored
            if self.pruned == before:
                self.explored += 1
            if not self._advance():
                self.exhausted = True
                return

    def choose(self, options: Sequence[Option], state: Callable[[], Hashable]) -> int:
        """The next one on the present path; the first that makes a difference, where it is new."""
        if self._at >= self.depth:
            self.cut = True
            return self.beyond.choose(options, state)
        if self._at == len(self._path):
            self._enter(options, hash(state()))
        node = self._path[self._at]
        labels = [each.label for each in node.options]
        assert labels == [each.label for each in options], "the same choices led somewhere else"
        self._at += 1
        return node.at

    def _enter(self, options: Sequence[Option], state: int) -> None:
        sleep = self._path[-1].sleep_after() if self._path else frozenset()
        known = self._seen.setdefault(state, [])
        node = _Node(options, sleep)
        # Whoever came here before tried all that is to be tried now, and no later.
        seen = any(depth <= self._at and slept <= sleep for depth, slept in known)
        if seen or not node.advance():
            self.pruned += 1
            raise Pruned
        known.append((self._at, sleep))
        self._path.append(node)

    def _advance(self) -> bool:
        while self._path and not self._path[-1].advance():
            self._path.pop()
        return bool(self._path)


def _apart(one: Option, other: Option) -> bool:
    """Whether the order of two cannot matter."""
    if one.touches is None or other.touches is None:
        return False
    return not (_clash(one.touches, other.touches) or _clash(other.touches, one.touches))


def _clash(one: frozenset[str], other: frozenset[str]) -> bool:
    changed = {each for each in one if not each.startswith("?")}
    return any(each.removeprefix("?") in changed for each in other)
