"""Simulations by chance and by search: for seconds in a test, for hours with `make soak`.

    make soak SECONDS=600                 as many as the time allows, from a fresh seed
    make soak SEED='one hook/7f3a-12'     one of them again, with its whole trace
    make soak SECONDS=60 STORY=approval   one story alone

What goes wrong is printed with the seed that brings it back. Ends with `0 violations`, or fails.
"""

from __future__ import annotations

import argparse
import logging
import secrets
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from examples.outside import connect
from stepwell.testing.simulation import ANY, Faults, Seeded, Simulation
from tests.simulation.stories import BY_NAME, STORIES, Story

#: Faults that a seed draws one of: everything at once, or much of one kind.
MIXTURES = (
    ANY,
    Faults(crashes=4),
    Faults(crashes=2, freezes=2),
    Faults(throttled=4, lost_replies=4),
    Faults(doubled=4, redriven=4, delays=8),
    Faults(lost_timers=2, crashes=2, stale=2, delays=4),
    Faults(denied=3, vanished=1, crashes=1),
)
SKEWS = ((0,), (0, 1_500, -1_500), (-60_000, 60_000))


@dataclass(slots=True)
class Tally:
    """What was tried."""

    simulations: int = 0
    actions: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    turns: int = 0
    violations: list[str] = field(default_factory=list)

    def add(self, sim: Simulation) -> None:
        """Count a simulation that is over."""
        self.simulations += 1
        self.actions += len(sim.trace)
        self.turns += len(sim.cluster.record.turns)
        self.faults += sim.injected()


def simulate(story: Story, seed: str) -> Simulation:
    """One simulation; the caller closes it."""
    drawn = sum(seed.encode())
    connect(":memory:")
    sim = Simulation(
        faults=MIXTURES[drawn % len(MIXTURES)],
        seed=seed,
        skews=SKEWS[drawn % len(SKEWS)],
        paged=drawn % 2 == 0,
    )
    story.begin(sim)
    return sim


def try_once(story: Story, seed: str, tally: Tally) -> str | None:
    """Play it and check all laws. What is wrong with it, None if nothing is."""
    with simulate(story, seed) as sim:
        try:
            sim.run(Seeded(f"{story.name}/{seed}"))
            sim.check()
        except Exception as error:  # of the engine, too: what no fault explains is raised again
            return f"{type(error).__name__}: {error}\n  again: make soak SEED='{story.name}/{seed}'"
        finally:
            tally.add(sim)
    return None


def seeds(first: str) -> Iterator[tuple[Story, str]]:
    """Stories and seeds without end."""
    number = 0
    while True:
        for story in STORIES:
            yield story, f"{first}-{number}"
        number += 1


def again(name: str) -> int:
    """Play one simulation again and tell all of it."""
    story, _, seed = name.rpartition("/")
    with simulate(BY_NAME[story], seed) as sim:
        try:
            sim.run(Seeded(name))
            sim.check()
        except Exception:
            wrong = traceback.format_exc()
        else:
            wrong = ""
        print("\n".join(sim.trace))
        for run_id in sim.run_ids():
            print(run_id, *sim.facts(run_id).events, sep="\n  ")
    if wrong:
        print(wrong)
        return 1
    print("0 violations")
    return 0


def soak(seconds: float, first: str, only: str | None) -> int:
    """Play as many as the time allows."""
    tally, until, told = Tally(), time.monotonic() + seconds, time.monotonic()
    print(f"first seed {first}")
    for story, seed in seeds(first):
        if only is not None and story.name != only:
            continue
        wrong = try_once(story, seed, tally)
        if wrong is not None:
            tally.violations.append(wrong)
            print(f"VIOLATION {story.name}: {wrong}", flush=True)
        now = time.monotonic()
        if now >= told + 10:
            told = now
            print(
                f"{tally.simulations} simulations, {len(tally.violations)} violations", flush=True
            )
        if now >= until:
            break
    faults = ", ".join(f"{count} {kind}" for kind, count in sorted(tally.faults.items()))
    print(f"{tally.simulations} simulations of {len(STORIES)} stories, {tally.turns} turns")
    print(f"{tally.actions} actions; faults: {faults}")
    print(f"{len(tally.violations)} violations")
    return bool(tally.violations)


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", default="", help="STORY/SEED: play that one again")
    parser.add_argument("--story", default="", help=f"one of {', '.join(sorted(BY_NAME))}")
    options = parser.parse_args()
    story = options.seed.rpartition("/")[0] or options.story
    if story and story not in BY_NAME:
        parser.error(f"there is no story {story!r}; there are {', '.join(sorted(BY_NAME))}")
    logging.disable(logging.CRITICAL)  # a faulty world has much to say
    if "/" in options.seed:
        return again(options.seed)
    return soak(options.seconds, options.seed or secrets.token_hex(4), options.story or None)


if __name__ == "__main__":
    sys.exit(main())
