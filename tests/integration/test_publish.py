"""Published workflows: starting them without their code, and waking runs that their code left."""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from stepwell import Client, hook, step, workflow
from stepwell.core.definitions import WorkflowDefinition, published
from stepwell.core.messages import CancelRun, dump_message
from stepwell.core.records import Attention, RunStatus
from stepwell.errors import (
    IdempotencyConflict,
    InputRejected,
    PayloadError,
    RunBlocked,
    RunFailed,
    WorkflowNotFound,
)
from stepwell.testing import Environment
from stepwell.testing.crashes import Crash, Crasher


class Order(BaseModel):
    number: str
    amount: float = 1.0


@dataclass(frozen=True)
class Shop:
    """A deployment with one workflow, which it may have published."""

    env: Environment
    bill: Any

    @property
    def definition(self) -> WorkflowDefinition:
        definition: WorkflowDefinition = self.bill.definition
        return definition

    def publish(self, *definitions: WorkflowDefinition, wake_all: bool = False) -> Any:
        wanted = definitions or (self.definition,)
        return self.env.wait_for(self.env.client.publish(wanted, wake_all=wake_all))

    def start(self, *given: Any, key: str | None = None) -> Any:
        client = self.env.client.with_options(idempotency_key=key)
        return self.env.wait_for(client.start_named("bill", *given))


@pytest.fixture
def shop(env: Environment) -> Shop:
    @workflow(version="3")
    async def bill(order: Order, on: dt.date = dt.date(2030, 1, 1), tries: int = 3) -> str:
        """Bill an order."""
        return f"{order.number}: {order.amount} {on} {tries}"

    return Shop(env, bill)


def test_a_start_by_name_runs_the_workflow_with_its_defaults(shop: Shop) -> None:
    shop.publish()
    run = shop.start({"order": {"number": "a"}, "tries": 2})
    shop.env.run_until_idle()
    assert shop.env.result(run) == "a: 1.0 2030-01-01 2"
    assert shop.env.get(run).version == "3"


def test_a_start_by_name_records_the_defaults_so_that_a_later_change_does_not_reach_it(
    shop: Shop,
) -> None:
    shop.publish()
    run = shop.start({"order": {"number": "a"}})

    recorded = shop.env.get(run).input
    assert recorded == '{"order":{"number":"a","amount":1.0},"on":"2030-01-01","tries":3}'
    shop.env.run_until_idle()


def test_an_input_that_does_not_fit_is_refused_and_nothing_starts(shop: Shop) -> None:
    shop.publish()
    with pytest.raises(InputRejected) as rejected:
        shop.start({"order": {"amount": "much"}, "other": 1})
    assert rejected.value.workflow == "bill"
    pointers = {each["pointer"] for each in rejected.value.errors}
    assert pointers == {"", "/order", "/order/amount"}
    assert shop.env.wait_for(shop.env.client.list_runs()).items == ()


def test_a_start_without_arguments_needs_no_input(env: Environment) -> None:
    @workflow
    async def plain() -> int:
        return 1

    env.wait_for(env.client.publish([plain.definition]))
    run = env.wait_for(env.client.start_named("plain"))
    env.run_until_idle()
    assert env.result(run) == 1


@pytest.mark.parametrize("name", ["bil", "", "R#1", "x" * 200])
def test_an_unknown_workflow_is_refused_once_others_are_published(shop: Shop, name: str) -> None:
    shop.publish()
    with pytest.raises(WorkflowNotFound) as missing:
        shop.env.wait_for(shop.env.client.start_named(name, {}))
    assert missing.value.workflow == name


def test_while_nothing_is_published_the_worker_decides(shop: Shop) -> None:
    good = shop.start({"order": {"number": "a"}})
    bad = shop.start({"order": {"amount": "much"}})
    shop.env.run_until_idle()
    assert shop.env.result(good) == "a: 1.0 2030-01-01 3"
    assert shop.env.get(good).version == "1"
    with pytest.raises(RunFailed, match="order"):
        shop.env.result(bad)


@pytest.mark.parametrize("given", [{"order": object()}, {"order": math.nan}, {1: 2}])
def test_what_is_no_json_is_refused(shop: Shop, given: Any) -> None:
    with pytest.raises(PayloadError):
        shop.start(given)


def test_a_start_by_name_and_one_with_the_code_are_the_same_start(shop: Shop) -> None:
    shop.publish()
    named = shop.start({"tries": 3, "order": {"amount": 1, "number": "a"}}, key="k")
    coded = shop.env.wait_for(
        shop.env.client.with_options(idempotency_key="k").start(shop.bill, Order(number="a"))
    )
    again = shop.start({"order": {"number": "a"}}, key="k")
    assert named.id == coded.id == again.id
    assert (named.repeated, coded.repeated, again.repeated) == (False, True, True)
    with pytest.raises(IdempotencyConflict):
        shop.start({"order": {"number": "b"}}, key="k")


def test_a_start_by_name_that_is_spelt_otherwise_conflicts_and_is_no_second_run(
    shop: Shop,
) -> None:
    shop.publish()
    shop.start({"order": {"number": "a"}, "on": "2031-01-01"}, key="k")
    with pytest.raises(IdempotencyConflict):
        shop.start({"order": {"number": "a"}, "on": "2031-01-01T00:00:00"}, key="k")
    assert len(shop.env.wait_for(shop.env.client.list_runs()).items) == 1


def test_what_is_published_can_be_read_by_name_and_listed(shop: Shop) -> None:
    other = replace(shop.definition, name="another")
    done = shop.publish(shop.definition, other)
    client = shop.env.client
    assert done.changed == ("bill", "another")
    found = shop.env.wait_for(client.get_definition("bill"))
    assert found == published(shop.definition, shop.env.clock.now())
    page = shop.env.wait_for(client.list_definitions())
    assert [each.name for each in page.items] == ["another", "bill"]
    with pytest.raises(WorkflowNotFound):
        shop.env.wait_for(client.get_definition("bil"))


def test_publishing_the_same_again_changes_nothing(shop: Shop) -> None:
    shop.publish()
    first = shop.env.wait_for(shop.env.client.get_definition("bill"))
    shop.env.advance("1h")
    assert shop.publish().changed == ()
    assert shop.env.wait_for(shop.env.client.get_definition("bill")) == first


def test_an_older_version_is_no_news_and_does_not_become_the_current_one(shop: Shop) -> None:
    shop.publish(replace(shop.definition, version="10"))
    assert shop.publish(replace(shop.definition, version="9")).changed == ()
    assert shop.env.wait_for(shop.env.client.get_definition("bill")).version == "10"


def asks(name: str, *, first: bool, version: str = "1") -> Any:
    @step
    async def before() -> None: ...

    @workflow(name=name, version=version)
    async def asking() -> Any:
        if first:
            await before()
        return await hook("question")

    return asking


def blocked(env: Environment, name: str) -> Any:
    """A run whose history the code that is there does not fit."""
    run = env.start(asks(name, first=False))
    env.run_until_idle()
    asks(name, first=True)
    [waiting] = env.hooks(run)
    env.resume_hook(waiting.token, "yes")
    with pytest.raises(RunBlocked):
        env.result(run)
    return run


def test_new_code_wakes_the_runs_that_wait_for_it(env: Environment) -> None:
    run, other = blocked(env, "asked"), blocked(env, "also")
    fitting = asks("asked", first=False, version="2")
    done = env.wait_for(env.client.publish([fitting.definition]))
    env.run_until_idle()
    assert (done.changed, done.woken) == (("asked",), 1)
    assert env.result(run) == "yes"
    assert env.get(other).attention is not None
    asks("also", first=False)
    env.wait_for(env.client.wake(other.id))
    env.run_until_idle()


def test_code_that_looks_the_same_wakes_only_when_it_is_asked_to(env: Environment) -> None:
    definition = asks("asked", first=True).definition
    env.wait_for(env.client.publish([definition]))
    run = blocked(env, "asked")
    fitting = asks("asked", first=False)
    assert env.wait_for(env.client.publish([fitting.definition])).woken == 0
    env.run_until_idle()
    assert env.get(run).attention is not None
    assert env.wait_for(env.client.publish([fitting.definition], wake_all=True)).woken == 1
    env.run_until_idle()
    assert env.result(run) == "yes"


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("call", range(1, 5))
def test_who_publishes_again_after_a_crash_wakes_what_is_still_to_be_woken(
    env: Environment, call: int, when: Literal["before", "after"]
) -> None:
    run = blocked(env, "asked")
    fitting = asks("asked", first=False, version="2")
    crasher = Crasher()
    dying = Client(crasher.wrap(env.client._ports), env.client._settings)

    async def publish() -> None:
        with crasher.armed():
            await dying.publish([fitting.definition])

    crasher.crash_at(call, when)
    with pytest.raises(Crash):
        env.wait_for(publish())
    env.wait_for(env.client.publish([fitting.definition]))
    env.run_until_idle()
    assert env.result(run) == "yes"
    assert env.wait_for(env.client.get_definition("asked")).version == "2"


def test_a_stuck_run_gets_its_message_again_when_it_is_woken(env: Environment) -> None:
    run = env.start(asks("asked", first=False))
    env.run_until_idle()
    kept = dump_message(CancelRun(run_id=run.id, request_id="r1", reason="lost before"))
    stick(env, run, kept)
    env.wait_for(env.client.wake(run.id))
    env.run_until_idle()
    assert env.get(run).status is RunStatus.CANCELLED


@pytest.mark.parametrize("kept", [None, "no message", '{"type": "step_attempt"}'])
def test_a_stuck_run_without_a_message_of_ours_is_just_woken(
    env: Environment, kept: str | None
) -> None:
    run = env.start(asks("asked", first=False))
    env.run_until_idle()
    stick(env, run, kept)
    env.wait_for(env.client.wake(run.id))
    env.run_until_idle()
    assert env.get(run).attention is None
    assert env.get(run).status is RunStatus.SUSPENDED


def stick(env: Environment, run: Any, message: str | None) -> None:
    header = env.get(run)
    note = Attention(kind="STUCK", reason="gave up", since=env.clock.now(), message=message)
    env.wait_for(env.client._ports.store.update_header(replace(header, attention=note)))
    listed = env.wait_for(env.client.list_runs(attention="STUCK")).items
    assert [each.run_id for each in listed] == [run.id]
