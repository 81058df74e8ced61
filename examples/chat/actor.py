"""A chat agent as an actor: one stream run per conversation, one message at a time.

What the agent knows of a conversation is its checkpoint, which costs the same for the first message
and for the thousandth. Its model and its tools are steps: asked once for each message.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

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


class Said(BaseModel):
    """What somebody has said."""

    text: str = Field(min_length=1, max_length=4_000)


@step(name="chat.think", retry=RetryPolicy(max_attempts=3))
async def think(recent: list[str], text: str) -> str:
    """What the model answers. A model of three rules, which stands for a large one."""
    if text.endswith("?"):
        return f"I was asked {len(recent)} things before; I do not know."
    if any(text == each for each in recent):
        return "You have said that."
    return f"You said {len(text.split())} words."


@stream_workflow(name=STREAM)
async def chat(greeting: str = "Hello") -> None:
    """One conversation. It ends when somebody says goodbye."""
    await emit(STREAM, "agent.said", {"text": greeting})


@stream_step(stream=STREAM, signals={"user.said": Said, "user.left": None}, name="agent")
async def agent() -> None:
    """Answer what was said. Messages that came in a burst are answered together."""
    signal = await get_current_signal()
    state: dict[str, Any] = (await get_checkpoint()) or {"count": 0, "recent": []}
    if signal is None:
        return
    if signal.signal_type == "user.left":
        await set_result({"messages": state["count"], "last": state["recent"][-1:]})
        await terminate()
        return
    said = [signal.payload["text"]]
    for more in await poll_inbox(["user.said"]):
        said.append(more.payload["text"])
        await acknowledge_inbox_signal(more.signal_id)
    answer = await think(state["recent"], said[-1])
    await emit(STREAM, "agent.said", {"text": answer, "to": len(said)})
    state["count"] += len(said)
    state["recent"] = [*state["recent"], *said][-MEMORY:]
    await save_checkpoint(state)


@stream_step(stream=STREAM, signals=["agent.said", "user.left"], name="transcript")
async def transcript() -> None:
    """Count what the agent has said: another step on the same stream, at its own pace."""
    signal = await get_current_signal()
    state = (await get_checkpoint()) or {"said": 0, "last": ""}
    if signal is None:
        return
    if signal.signal_type == "user.left":
        await set_result(state)
        await terminate()
        return
    await save_checkpoint({"said": state["said"] + 1, "last": signal.payload["text"]})
