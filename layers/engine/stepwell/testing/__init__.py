"""Testing workflows: a deployment in memory, time that skips, processes that die on command."""

from stepwell.testing.environment import Environment

__all__ = ["Environment"]
