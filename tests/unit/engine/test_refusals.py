"""What workflow code may not do, and how it is told so."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from stepwell import hook, sleep, step, step_hook, workflow
from stepwell.authoring.registry import registry
from stepwell.core.records import RunStatus
from stepwell.errors import RunFailed, StepFailed
from stepwell.testing import Environment
from stepwell.testing.laws import check_run

with registry.isolated():

    @step
    async def work(n: int = 0) -> int:
        return n


def failure(env: Environment, body: Callable[..., Any]) -> tuple[str, str]:
    run = env.start(workflow(body))
    env.run_until_idle()
    with pytest.raises(RunFailed) as caught:
        env.result(run)
    check_run(env, run)
    return caught.value.failure.type, caught.value.failure.message


async def in_executor() -> Any:
    return await asyncio.get_running_loop().run_in_executor(None, print)


async def to_thread() -> Any:
    return await asyncio.to_thread(print)


async def open_connection() -> Any:
    return await asyncio.open_connection("localhost", 1)


async def start_server() -> Any:
    return await asyncio.start_server(lambda r, w: None, "localhost", 0)


async def subprocess() -> Any:
    return await asyncio.create_subprocess_exec("true")


async def subprocess_shell() -> Any:
    return await asyncio.create_subprocess_shell("true")


async def getaddrinfo() -> Any:
    return await asyncio.get_running_loop().getaddrinfo("localhost", 80)


async def add_reader() -> Any:
    asyncio.get_running_loop().add_reader(0, print)


async def add_signal_handler() -> Any:
    asyncio.get_running_loop().add_signal_handler(2, print)


async def call_soon_threadsafe() -> Any:
    asyncio.get_running_loop().call_soon_threadsafe(print)


async def sock_recv() -> Any:
    with socket.socket() as unconnected:
        return await asyncio.get_running_loop().sock_recv(unconnected, 1)


async def run_until_complete() -> Any:
    asyncio.get_running_loop().run_until_complete(asyncio.sleep(0))


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (in_executor, "run_in_executor"),
        (to_thread, "run_in_executor"),
        (open_connection, "create_connection"),
        (start_server, "create_server"),
        (subprocess, "subprocess_exec"),
        (subprocess_shell, "subprocess_shell"),
        (getaddrinfo, "getaddrinfo"),
        (add_reader, "add_reader"),
        (add_signal_handler, "add_signal_handler"),
        (call_soon_threadsafe, "call_soon_threadsafe"),
        (sock_recv, "sock_recv"),
    ],
)
def test_real_io_fails_the_run_and_says_to_do_it_in_a_step(
    body: Callable[[], Awaitable[Any]], name: str, stepwell_env: Environment
) -> None:
    kind, message = failure(stepwell_env, body)
    assert kind == "stepwell.errors.UsageError"
    assert f"loop.{name}" in message
    assert "do this in a step" in message


def test_a_workflow_that_only_spins_fails_instead_of_hanging(stepwell_env: Environment) -> None:
    async def spins() -> None:
        await work()
        while True:
            await asyncio.sleep(0)

    kind, message = failure(stepwell_env, spins)
    assert kind == "stepwell.errors.UsageError"
    assert "spins" in message


@pytest.mark.parametrize("with_step", [True, False])
def test_a_wait_that_nothing_can_end_fails_the_run(
    with_step: bool, stepwell_env: Environment
) -> None:
    async def waits() -> None:
        if with_step:
            await work()
        await asyncio.Event().wait()

    kind, message = failure(stepwell_env, waits)
    assert kind == "stepwell.errors.UsageError"
    assert "none of those is left that could end the wait" in message


def test_as_completed_refuses_what_has_no_order(stepwell_env: Environment) -> None:
    async def unordered() -> None:
        calls = {work(1), work(2)}
        try:
            for each in asyncio.as_completed(calls):
                await each
        finally:
            for call in calls:
                call.close()

    kind, message = failure(stepwell_env, unordered)
    assert kind == "stepwell.errors.UsageError"
    assert "pass a list or tuple" in message


@pytest.mark.parametrize("delay", [float("inf"), 1e12])
def test_a_delay_without_end_is_refused(delay: float, stepwell_env: Environment) -> None:
    async def waits() -> None:
        await asyncio.sleep(delay)

    kind, message = failure(stepwell_env, waits)
    assert kind == "ValueError"
    assert "at most 100 years" in message


@pytest.mark.parametrize("colour", ["async", "def"])
def test_leaving_the_process_fails_the_run_only(colour: str, stepwell_env: Environment) -> None:
    async def leaves_async() -> None:
        await work()
        sys.exit("enough")

    def leaves_def() -> None:
        work()
        sys.exit("enough")

    body: Any = leaves_async if colour == "async" else leaves_def
    assert failure(stepwell_env, body) == ("SystemExit", "enough")


def test_a_child_that_leaves_the_process_fails_only_who_awaits_it(
    stepwell_env: Environment,
) -> None:
    async def parent() -> str:
        async def child() -> None:
            await work()
            sys.exit("enough")

        try:
            await asyncio.create_task(child())
        except SystemExit as error:
            await work()
            return f"caught {error}"
        return "missed"

    run = stepwell_env.start(workflow(parent))
    stepwell_env.run_until_idle()
    assert stepwell_env.result(run) == "caught enough"
    check_run(stepwell_env, run)


def test_a_cancellation_that_nobody_asked_for_fails_the_run(stepwell_env: Environment) -> None:
    async def gives_up() -> None:
        await work()
        raise asyncio.CancelledError("my own")

    kind, message = failure(stepwell_env, gives_up)
    assert (kind, message) == ("asyncio.exceptions.CancelledError", "my own")


def test_an_error_of_a_callback_is_logged_and_harms_nothing(
    stepwell_env: Environment, caplog: pytest.LogCaptureFixture
) -> None:
    def breaks() -> None:
        raise ZeroDivisionError("in a callback")

    async def flow() -> int:
        asyncio.get_running_loop().call_soon(breaks)
        return await work(4)

    run = stepwell_env.start(workflow(flow))
    stepwell_env.run_until_idle()
    assert stepwell_env.result(run) == 4
    assert any(
        record.exc_info is not None and "in a callback" in str(record.exc_info[1])
        for record in caplog.records
    )


def test_an_ended_run_stays_ended_with_the_status_of_its_error(stepwell_env: Environment) -> None:
    async def fails() -> None:
        raise ValueError("no")

    run = stepwell_env.start(workflow(fails))
    stepwell_env.run_until_idle()
    assert stepwell_env.get(run).status is RunStatus.FAILED


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: work(1), "await work"),
        (lambda: sleep("1h"), "await sleep"),
        (lambda: hook("question"), "await question"),
    ],
)
def test_a_primitive_that_is_never_awaited_fails_the_run_and_is_shown(
    stepwell_env: Environment, call: Callable[[], Any], told: str
) -> None:
    @workflow
    async def forgetful() -> None:
        call()

    run = stepwell_env.start(forgetful)
    stepwell_env.run_until_idle()
    with pytest.raises(RunFailed, match=told) as caught:
        stepwell_env.result(run)
    assert "test_refusals.py" in caught.value.failure.message


def test_a_primitive_of_a_step_that_is_never_awaited_fails_the_step(
    stepwell_env: Environment,
) -> None:
    @step
    async def forgetful_step() -> None:
        step_hook("question")

    @workflow
    async def flow() -> str:
        try:
            await forgetful_step()
        except StepFailed as failed:
            return failed.message
        return ""

    told = stepwell_env.run(flow)
    assert "step_hook(...) was called and never awaited" in told
