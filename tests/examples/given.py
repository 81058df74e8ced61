"""The examples as the tests drive them: start once, answer whatever is asked, see the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from examples.agent.workflow import assist
from examples.approval.workflow import Order, refund
from stepwell.authoring.decorators import Workflow
from stepwell.client import RunHandle
from stepwell.testing import Environment

ORDER = Order(number="A-1", customer="C-17", amount=Decimal("48.50"), complaint="arrived broken")


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """An example, and what is answered to its hooks, by the end of the hook's id."""

    workflow: Workflow[..., Any]
    argument: Any
    answers: Mapping[str, Any]


EXAMPLES = {
    "approval": Example(
        workflow=refund,
        argument=ORDER,
        answers={"approval:1": {"approved": True, "reviewer": "the reviewer"}},
    ),
    "agent": Example(
        workflow=assist,
        argument="a flight to Oslo",
        answers={"visitor@call-3": {"text": "aisle"}, "visitor@call-4": {"text": "yes"}},
    ),
}


def started(env: Environment, example: Example) -> RunHandle[Any]:
    """The one run of an example in this deployment, started if it is not there."""
    client = env.client.with_options(idempotency_key="one")
    run: RunHandle[Any] = env.wait_for(client.start(example.workflow, example.argument))
    env.run_until_idle()
    return run


def answer_all(env: Environment, example: Example) -> None:
    """Answer every hook until none is open."""
    while open_hooks := env.hooks():
        answer_next(env, example)
        assert env.hooks() != open_hooks


def answer_next(env: Environment, example: Example) -> None:
    """Answer the oldest open hook."""
    hook = env.hooks()[0]
    env.resume_hook(hook.token, example.answers[hook.hook_id.partition(">")[2]])
