"""Small workflows for what the examples do not show of a deployment."""

from __future__ import annotations

from examples.outside import outside
from stepwell import (
    STEP_HOOK_TIMEOUT,
    FatalError,
    RetryPolicy,
    current,
    emit,
    get_checkpoint,
    get_current_signal,
    hook,
    save_checkpoint,
    set_result,
    sleep,
    step,
    stream_step,
    stream_workflow,
    terminate,
    workflow,
)


@workflow
async def ask(question: str, timeout: str) -> str:
    """Ask, and give the answer; or say that there was none."""
    answer = await hook("answer", timeout=timeout, on_timeout="return")
    return "nobody answered" if answer is STEP_HOOK_TIMEOUT else f"{question} {answer}"


@workflow
async def nap(duration: str) -> str:
    """Sleep, and note that it is over."""
    await sleep(duration)
    await note("awake")
    return "awake"


@workflow
async def hand_over(item: str) -> str:
    """Have a step done by the step function, between two inline ones."""
    await note(f"before {item}")
    crushed: str = await crush.aio(item)
    await note(f"after {item}")
    return crushed


@workflow
def count_up(steps: int) -> int:
    """Take some steps, in a plain function."""
    total = 0
    for _ in range(steps):
        total = add_one(total)
    return total


@workflow
async def carry(size: int) -> int:
    """Carry a value from step to step that is too large for the table."""
    text: str = await make(size)
    return await measure(text)


@workflow
async def stumble(times: int) -> str:
    """Take a step that fails a few times."""
    return await shaky(times)


@workflow
async def fail(reason: str) -> None:
    """Fail for good."""
    await refuse(reason)


@stream_workflow
async def tally(first: int) -> None:
    """Add up numbers that come as signals."""
    await emit("tally", "added", {"n": first})


@stream_step(stream=tally, signals=["added", "closed"])
async def adds_up() -> None:
    """Keep the sum, and tell the outside of each number."""
    signal = await get_current_signal()
    total = (await get_checkpoint()) or 0
    if signal is None:
        return
    if signal.signal_type == "closed":
        await set_result(total)
        await terminate()
    else:
        await note(str(signal.payload["n"]))
        await save_checkpoint(total + signal.payload["n"])


@step
async def note(what: str) -> None:
    """Tell the outside."""
    outside().request("note", current.idempotency_key, what)


@step(dispatch="worker", retry=RetryPolicy(max_attempts=3, initial="1s"))
def crush(item: str) -> str:
    """Heavy work, so to speak."""
    outside().request("crush", current.idempotency_key, item)
    return f"crushed {item}"


@step
def add_one(number: int) -> int:
    """One more."""
    outside().request("add", current.idempotency_key, str(number))
    return number + 1


@step
async def make(size: int) -> str:
    """A text of that size that does not compress away."""
    seed = current.idempotency_key
    return "".join(f"{seed}/{n}" for n in range(size // len(seed) + 1))[:size]


@step
async def measure(text: str) -> int:
    """Its length."""
    return len(text)


@step(retry=RetryPolicy(max_attempts=5, initial="1s"))
async def shaky(times: int) -> str:
    """Fails the first few times."""
    if current.attempt <= times:
        raise ConnectionError(f"not yet, {current.attempt}")
    return f"done at attempt {current.attempt}"


@step
async def refuse(reason: str) -> None:
    """Fails at once."""
    raise FatalError(reason)
