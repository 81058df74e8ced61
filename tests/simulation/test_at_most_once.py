"""By chance: whatever dies, freezes or comes twice, an attempt that may be made once is."""

from __future__ import annotations

import pytest

from examples.outside import outside
from stepwell.testing.simulation import Seeded
from tests.simulation.soak import simulate
from tests.simulation.stories import BY_NAME


@pytest.mark.parametrize("part", range(4))
def test_no_attempt_is_made_twice(part: int) -> None:
    died = 0
    for number in range(40):
        seed = f"once-{part}-{number}"
        with simulate(BY_NAME["once"], seed) as sim:
            sim.run(Seeded(seed))
            sim.check()
            died += sim.injected()["crashes"]
            made = outside().effects("wired")
            assert outside().requests("wired") == len(made), f"{seed}: {made}"
    assert died > 10
