"""A simulated deployment: one thread, one seed, one history, and whatever can go wrong.

See `stepwell.testing.simulation.simulation`.
"""

from stepwell.testing.simulation.choices import Chosen, Explorer, FirstOf, Pruned, Seeded
from stepwell.testing.simulation.cluster import Request
from stepwell.testing.simulation.faults import ANY, Faults
from stepwell.testing.simulation.simulation import Simulation, Unsettled

__all__ = [
    "ANY",
    "Chosen",
    "Explorer",
    "Faults",
    "FirstOf",
    "Pruned",
    "Request",
    "Seeded",
    "Simulation",
    "Unsettled",
]
