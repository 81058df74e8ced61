"""The refund approval, with every ending that it can have."""

from __future__ import annotations

import json

import pytest

from examples.approval.workflow import refund
from examples.outside import Outside
from stepwell.core.records import RunStatus
from stepwell.errors import HookAlreadyDecided, HookExpired, PayloadRejected
from stepwell.testing import Environment
from stepwell.testing.laws import check_run
from tests.examples.given import ORDER

APPROVED = {"approved": True, "reviewer": "the reviewer"}


def test_an_approved_refund_is_paid_once(stepwell_env: Environment, world: Outside) -> None:
    run = stepwell_env.start(refund, ORDER)
    stepwell_env.run_until_idle()
    assert stepwell_env.get(run).status is RunStatus.SUSPENDED
    assert not world.effects("payment")

    [token] = world.effects("review asked").values()
    stepwell_env.resume_hook(token, APPROVED)

    result = stepwell_env.result(run)
    assert (result.status, result.draft) == ("paid", "Refund C-17: arrived broken")
    assert list(world.effects("payment").values()) == ["48.50 to C-17"]
    assert list(world.effects("confirmation").values()) == ["A-1: paid"]
    check_run(stepwell_env, run)


def test_what_was_worked_out_before_the_wait_is_not_worked_out_again(
    stepwell_env: Environment, world: Outside
) -> None:
    run = stepwell_env.start(refund, ORDER)
    stepwell_env.run_until_idle()
    stepwell_env.advance("23h")
    [hook] = stepwell_env.hooks(run)
    stepwell_env.resume_hook(hook.token, APPROVED)
    assert stepwell_env.result(run).status == "paid"
    for kind in ("draft", "review asked", "payment", "confirmation"):
        assert world.requests(kind) == 1


def test_a_declined_refund_is_not_paid(stepwell_env: Environment, world: Outside) -> None:
    run = stepwell_env.start(refund, ORDER)
    stepwell_env.run_until_idle()
    [hook] = stepwell_env.hooks(run)
    stepwell_env.resume_hook(
        hook.token, {"approved": False, "reviewer": "the reviewer", "note": "no"}
    )
    assert stepwell_env.result(run).status == "declined"
    assert not world.effects("payment")
    assert list(world.effects("confirmation").values()) == ["A-1: declined"]


def test_a_refund_that_nobody_looks_at_ends_after_a_day(
    stepwell_env: Environment, world: Outside
) -> None:
    run = stepwell_env.start(refund, ORDER)
    stepwell_env.run_until_idle()
    [hook] = stepwell_env.hooks(run)
    stepwell_env.advance("23h59m")
    assert stepwell_env.get(run).status is RunStatus.SUSPENDED
    stepwell_env.advance("1m")
    assert stepwell_env.result(run).status == "unanswered"
    assert not world.effects("payment")
    with pytest.raises(HookExpired):
        stepwell_env.resume_hook(hook.token, APPROVED)


@pytest.mark.parametrize(
    ("payload", "pointer"),
    [
        ({"approved": "perhaps", "reviewer": "the reviewer"}, "/approved"),
        ({"approved": True}, ""),
        ({**APPROVED, "amount": 1_000_000}, ""),
        ("yes", ""),
        (None, ""),
    ],
)
def test_an_answer_that_is_no_review_is_refused_and_a_good_one_taken_after_it(
    stepwell_env: Environment, world: Outside, payload: object, pointer: str
) -> None:
    run = stepwell_env.start(refund, ORDER)
    stepwell_env.run_until_idle()
    [hook] = stepwell_env.hooks(run)
    with pytest.raises(PayloadRejected) as refused:
        stepwell_env.resume_hook(hook.token, payload)
    assert refused.value.errors[0]["pointer"] == pointer
    assert stepwell_env.hooks(run) == (hook,)

    assert not stepwell_env.resume_hook(hook.token, APPROVED).repeated
    assert stepwell_env.result(run).status == "paid"


def test_the_first_answer_wins(stepwell_env: Environment, world: Outside) -> None:
    run = stepwell_env.start(refund, ORDER)
    stepwell_env.run_until_idle()
    [hook] = stepwell_env.hooks(run)
    stepwell_env.resume_hook(hook.token, APPROVED)
    assert stepwell_env.resume_hook(hook.token, APPROVED).repeated
    with pytest.raises(HookAlreadyDecided):
        stepwell_env.resume_hook(hook.token, {**APPROVED, "approved": False})
    assert stepwell_env.result(run).status == "paid"
    assert len(world.effects("payment")) == 1


def test_the_question_carries_the_schema_of_its_answer(
    stepwell_env: Environment, world: Outside
) -> None:
    run = stepwell_env.start(refund, ORDER)
    stepwell_env.run_until_idle()
    [hook] = stepwell_env.hooks(run)
    assert hook.schema is not None
    assert set(json.loads(hook.schema)["properties"]) == {"approved", "reviewer", "note"}
