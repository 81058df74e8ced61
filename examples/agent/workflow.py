"""An agent whose tools may ask the visitor, in one step that survives the waiting.

The step keeps its whole conversation in its checkpoint, after each model turn and each tool. When a
tool needs the visitor, the step saves which call that is and suspends at its own boundary, outside
of the tool and its middleware. The answer brings it back to that very call: no model turn is asked
for again, no tool runs again, nothing is shown to the visitor twice.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from pydantic import BaseModel, ConfigDict

from examples.agent.messages import Conversation, ToolCall, ToolMessage, UserMessage
from examples.agent.model import next_turn
from examples.agent.tools import TOOLS, Question, stacked
from examples.outside import outside
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


class Reply(BaseModel):
    """What the visitor answers."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    text: str


@workflow
async def assist(wish: str) -> Conversation:
    """Help a visitor; gives the whole conversation."""
    conversation: Conversation = await converse(wish)
    return conversation


@step(stream=True)
async def converse(wish: str) -> AsyncIterator[str | Result[Conversation]]:
    """Take model turns and run tools until the model has nothing more to do."""
    run_tool = stacked(TOOLS)
    conversation = await load_step_checkpoint(Conversation)
    if conversation is None:
        # The first pass. The key covers a crash before the checkpoint is there.
        outside().request("credit", current.idempotency_key, "one conversation")
        conversation = Conversation(transcript=(UserMessage(text=wish),))
        await save_step_checkpoint(conversation)
    while True:
        if conversation.pending is not None:
            answer = await _ask(conversation.pending)
            conversation = conversation.said(answer)
        elif (call := conversation.next_call()) is not None:
            result = await run_tool(call)
            if isinstance(result, Question):
                conversation = conversation.held_up_by(result.call)
            else:
                conversation = conversation.said(result)
        else:
            turn = await next_turn(conversation)
            for word in turn.text.split():
                yield word
            conversation = conversation.said(turn)
            if not turn.calls:
                break
        await save_step_checkpoint(conversation)
    await delete_step_checkpoint()
    yield Result(conversation)


async def _ask(call: ToolCall) -> ToolMessage:
    """The visitor's answer to a call, as the message that the model will read.

    Each question has the key of its call, so two in a row are two hooks, whatever else was asked.
    """

    async def show(token: str) -> None:
        question = f"{call.arguments['question']} {token}"
        outside().request("question", f"{current.idempotency_key}/{call.id}", question)

    reply = await step_hook(
        "visitor",
        key=call.id,
        timeout="15m",
        on_created=show,
        on_timeout="return",
        payload_schema=Reply,
    )
    if reply is STEP_HOOK_TIMEOUT:
        return ToolMessage(call=call.id, text="the visitor did not respond")
    return ToolMessage(call=call.id, text=reply.text)
