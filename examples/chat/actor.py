"""A chat agent as an actor: one stream run per conversation, one message at a time.

What the agent knows of a conversation is its checkpoint, which costs the same for the first message
and for the thousandth. Its model is asked in a step: once for each answer.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from examples.chat import model
from stepwell import (
    RetryPolicy,
    acknowledge_inbox_signal,
    emit,
    get_checkpoint,
    get_current_signal,
    poll_inbox,
    save_checkpoint,
    set_result,
    step,
    stream_step,
    stream_workflow,
    terminate,
)

STREAM = "chat"
#: Messages that the agent remembers word by word.
MEMORY = 6
#: Messages that are answered together at most.
TOGETHER = 5


class Said(BaseModel):
    """What somebody has said."""

    text: str = Field(min_length=1, max_length=4_000)


@step(name="chat.think", retry=RetryPolicy(max_attempts=3, initial="1s"))
async def think(recent: list[str], said: list[str]) -> str:
    """Ask the model."""
    return await model.answer(recent, said)


@stream_workflow(name=STREAM)
async def chat(greeting: str = "Hello") -> None:
    """One conversation. It ends when somebody says goodbye."""
    await emit(STREAM, "agent.said", {"text": greeting, "to": []})


@stream_step(stream=STREAM, signals={"user.said": Said, "user.left": None}, name="agent")
async def agent() -> None:
    """Answer what was said. Messages that came in a burst are answered together."""
    signal = await get_current_signal()
    state: dict[str, Any] = (await get_checkpoint()) or {"count": 0, "recent": []}
    if signal is None:
        return
    if signal.signal_type == "user.left":
        await emit(STREAM, "agent.left")
        await set_result({"messages": state["count"], "last": state["recent"][-1:]})
        await terminate()
        return
    burst = [signal, *await poll_inbox(["user.said"], limit=TOGETHER - 1)]
    for more in burst[1:]:
        await acknowledge_inbox_signal(more.signal_id)
    said = [each.payload["text"] for each in burst]
    answer = await think(state["recent"], said)
    await emit(STREAM, "agent.said", {"text": answer, "to": [each.sequence for each in burst]})
    state["count"] += len(said)
    state["recent"] = [*state["recent"], *said][-MEMORY:]
    await save_checkpoint(state)


@stream_step(stream=STREAM, signals=["agent.said", "agent.left"], name="transcript")
async def transcript() -> None:
    """Count what the agent has said: another step on the same stream, at its own pace."""
    signal = await get_current_signal()
    state = (await get_checkpoint()) or {"said": 0, "last": ""}
    if signal is None:
        return
    if signal.signal_type == "agent.left":
        await set_result(state)
        await terminate()
        return
    await save_checkpoint({"said": state["said"] + 1, "last": signal.payload["text"]})
