"""What runs cost on AWS: requests and capacity units, through the real adapters and handlers.

The services are emulated, so nothing is timed. A run is counted from its start to its end, its
answer included, without the reads of whoever watches it. What a process does once is left out:
publishing its workflows, and reading the keys.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from benchmarks.workflows import (
    around_a_hook,
    child_of_steps,
    dispatched,
    fan_out,
    goes_on,
    sequence,
    sleep_a_day,
)
from stepwell.authoring.decorators import Workflow
from stepwell.client import RunHandle
from tests.contract.given import run
from tests.contract.messaging import REGION, at_ms
from tests.contract.meter import Meter
from tests.integration.aws.deployment import Deployed, open_deployment

_DAY = 86_400_000


@dataclass(frozen=True, slots=True)
class Bill:
    """What one run costs. `messages` are those that went into queues, whoever sent them."""

    run: str
    requests: dict[str, int]
    written: int
    read: int
    messages: int
    invocations: int


class Stack:
    """A deployment on moto whose requests are counted."""

    def __init__(self, deployed: Deployed) -> None:
        self.deployed = deployed
        clients = deployed.aws.clients
        self._meter = Meter(deployed.aws.table, REGION, clients.sqs, clients.scheduler, clients.s3)
        self._fired = 0

    def bill(self, name: str, flow: Workflow[[int], Any], size: int, go_on: GoOn) -> Bill:
        """The bill of one run, after another one has made its process and its workflow known."""
        self._once(flow, size, go_on)
        self._meter.reset()
        delivered, self._fired = self.deployed.delivered, 0
        handle = self._once(flow, size, go_on)
        counted = Counter(self._meter.requests)
        written, read = self._meter.written, self._meter.read
        with self._meter.paused():
            last = run(self.deployed.client.chain(handle.id))[-1]
        assert last.status == "COMPLETED"
        return Bill(
            name,
            dict(sorted(counted.items())),
            written,
            read,
            counted["SendMessage"] + self._fired,
            self.deployed.delivered - delivered,
        )

    def _once(self, flow: Workflow[[int], Any], size: int, go_on: GoOn) -> RunHandle[Any]:
        handle: RunHandle[Any] = run(self.deployed.client.start(flow, size))
        self.deployed.pump()
        go_on(self, handle)
        self.deployed.pump()
        return handle

    def answer(self, handle: RunHandle[Any]) -> None:
        """Answer the hook that a run waits for."""
        client = self.deployed.client
        with self._meter.paused():
            [hook] = run(client.list_hooks(run_id=handle.id)).items
        run(client.resume_hook(hook.token, 1))

    def pass_a_day(self, _: RunHandle[Any]) -> None:
        """Let a day pass, and Scheduler do what is due by then."""
        self.deployed.clock.advance(_DAY)
        scheduler = self.deployed.aws.clients.scheduler
        with self._meter.paused():
            for each in scheduler.list_schedules(GroupName="stepwell")["Schedules"]:
                found = scheduler.get_schedule(GroupName="stepwell", Name=each["Name"])
                if at_ms(found["ScheduleExpression"]) <= self.deployed.clock.now():
                    target = found["Target"]
                    self.deployed.send("run.fifo", target["Input"])
                    scheduler.delete_schedule(GroupName="stepwell", Name=each["Name"])
                    self._fired += 1


GoOn = Callable[[Stack, RunHandle[Any]], None]


def _nothing(_: Stack, __: RunHandle[Any]) -> None:
    """What goes on by itself."""


@contextmanager
def open_stack() -> Iterator[Stack]:
    """An empty deployment."""
    with open_deployment() as deployed:
        yield Stack(deployed)


def all_bills() -> list[Bill]:
    """The bills of the reference runs."""
    with open_stack() as stack:
        return [
            stack.bill("5 steps", sequence, 5, _nothing),
            stack.bill("5 steps around a step hook", around_a_hook, 4, Stack.answer),
            stack.bill("1 dispatched step", dispatched, 1, _nothing),
            stack.bill("a sleep of a day", sleep_a_day, 1, Stack.pass_a_day),
            stack.bill("100 parallel steps", fan_out, 100, _nothing),
            stack.bill("a child of 5 steps", child_of_steps, 5, _nothing),
            stack.bill("going on as a new run once", goes_on, 1, _nothing),
        ]
