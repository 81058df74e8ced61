"""Finds in workflow code what would come out otherwise on a replay, without running it."""

from stepwell.lint.check import Unreadable, check_source
from stepwell.lint.finding import Finding

__all__ = ["Finding", "Unreadable", "check_source"]
