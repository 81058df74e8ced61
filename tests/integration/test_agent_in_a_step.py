"""A loop of model turns inside a step, whose tool asks a human through a forgiving middleware."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from stepwell import (
    STEP_HOOK_TIMEOUT,
    Result,
    current,
    delete_step_checkpoint,
    load_step_checkpoint,
    save_step_checkpoint,
    step,
    step_hook,
    workflow,
)
from stepwell.testing import Environment
from tests.integration.histories import crashes_of, kinds

Message = dict[str, Any]

SCRIPT: list[Message] = [
    {"role": "assistant", "text": "let me look", "tool": "search", "call": "c1"},
    {"role": "assistant", "text": "let me ask", "tool": "human", "call": "c2", "ask": "which one?"},
    {"role": "assistant", "text": "one more", "tool": "human", "call": "c3", "ask": "how many?"},
    {"role": "assistant", "text": "done", "tool": None},
]


class NeedsHuman(Exception):
    """A tool's request that the step has to see; the middleware lets it pass."""

    def __init__(self, message: Message) -> None:
        super().__init__(message["ask"])
        self.message = message


@dataclass
class World:
    """What the agent does outside: each list grows when it happens."""

    model_turns: list[int] = field(default_factory=list)
    searches: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    credits: dict[str, int] = field(default_factory=dict)

    def model(self, transcript: list[Message]) -> Message:
        turn = sum(message["role"] == "assistant" for message in transcript)
        self.model_turns.append(turn)
        return SCRIPT[turn]


async def forgiving(message: Message, tool: Callable[[Message], Awaitable[str]]) -> str:
    """Turns every error of a tool into its answer, but for a request to a human."""
    try:
        return await tool(message)
    except NeedsHuman:
        raise
    except Exception as error:
        return f"tool failed: {error}"


def agent_in(world: World) -> Any:
    async def tools(message: Message) -> str:
        if message["tool"] == "human":
            raise NeedsHuman(message)
        world.searches.append(message["call"])
        return "two results"

    async def ask(message: Message) -> str:
        answer = await step_hook(
            "visitor",
            key=message["call"],
            timeout="5m",
            on_created=world.asked.append,
            on_timeout="return",
        )
        return "did not respond" if answer is STEP_HOOK_TIMEOUT else str(answer)

    @step(stream=True)
    async def agent() -> AsyncIterator[str | Result[list[Message]]]:
        transcript: list[Message] | None = await load_step_checkpoint()
        if transcript is None:
            world.credits.setdefault(current.idempotency_key, 1)
            transcript = []
        while True:
            if not transcript or transcript[-1]["role"] == "tool":
                message = world.model(transcript)
                yield message["text"]
                transcript.append(message)
                await save_step_checkpoint(transcript)
            message = transcript[-1]
            if message["tool"] is None:
                break
            try:
                answer = await forgiving(message, tools)
            except NeedsHuman as request:
                answer = await ask(request.message)
            transcript.append({"role": "tool", "text": answer, "call": message["call"]})
            await save_step_checkpoint(transcript)
        await delete_step_checkpoint()
        yield Result(transcript)

    @workflow
    async def chat() -> list[Message]:
        transcript: list[Message] = await agent()
        return transcript

    return chat


def test_two_questions_in_a_row_one_of_them_without_an_answer(env: Environment) -> None:
    world = World()
    run = env.start(agent_in(world))
    env.run_until_idle()
    [first] = env.hooks()
    assert [chunk.value for chunk in env.output(run, "agent:1")] == ["let me look", "let me ask"]
    env.advance("4m")
    env.resume_hook(first.token, "the blue one")
    [second] = env.hooks()
    assert first.token != second.token
    env.advance("5m")
    transcript = env.result(run)
    assert [message["text"] for message in transcript] == [
        "let me look",
        "two results",
        "let me ask",
        "the blue one",
        "one more",
        "did not respond",
        "done",
    ]
    assert world.model_turns == [0, 1, 2, 3]
    assert world.searches == ["c1"]
    assert world.asked == [first.token, second.token]
    assert len(world.credits) == 1
    chunks = env.output(run, "agent:1")
    assert [chunk.value for chunk in chunks] == ["let me look", "let me ask", "one more", "done"]
    assert kinds(env, run).count("StepSuspended") == 2


def test_a_crash_anywhere_charges_once_and_shows_each_turn_once() -> None:
    world = World()
    runs: list[Any] = []

    def scenario(env: Environment) -> None:
        world.__init__()  # type: ignore[misc]
        runs.append(env.start(agent_in(world)))
        env.run_until_idle()
        [waiting] = env.hooks()
        env.resume_hook(waiting.token, "the blue one")
        env.advance("1h")

    for env in crashes_of(scenario):
        transcript = env.result(runs[-1])
        assert [message["text"] for message in transcript][3::2] == [
            "the blue one",
            "did not respond",
        ]
        assert len(world.credits) == 1
        assert len(world.model_turns) <= 4 + env.crashes
        assert len(set(world.asked)) == 2
        assert len(world.asked) <= 2 + env.crashes
        standing: list[Any] = []
        for chunk in env.output(runs[-1], "agent:1"):
            if chunk.reset:
                del standing[chunk.number :]
            else:
                standing.append(chunk.value)
        assert standing == ["let me look", "let me ask", "one more", "done"]


def test_abandoned_waits_hold_nothing_but_rows(env: Environment) -> None:
    world = World()
    chat = agent_in(world)
    runs = [env.start(chat) for _ in range(70)]
    env.run_until_idle()
    assert len(env.hooks()) == 70
    assert env.wait_for(env._local.queue.depth()) == 0
    env.advance("1h")
    assert all(env.get(run).status == "COMPLETED" for run in runs)
