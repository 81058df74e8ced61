"""Registers all workflows that scenarios play by name: those of examples, simulations and our own.

What they do outside is keyed, and counted by kind.
"""

from __future__ import annotations

from examples.agent import workflow as agent
from examples.approval import workflow as approval
from examples.chat import actor as chat
from examples.pipeline import streams as pipeline
from examples.review import stream as review
from tests.acceptance import carrying, deployments, doing, options, waiting
from tests.simulation import scenarios as simulated

__all__ = [
    "agent",
    "approval",
    "carrying",
    "chat",
    "deployments",
    "doing",
    "options",
    "pipeline",
    "review",
    "simulated",
    "waiting",
]
