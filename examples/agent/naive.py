"""The same agent as one would write it first: the tool itself waits, and nothing is kept.

The middleware swallows the suspension, and makes an error message for the model of it. The step is
suspended all the same: a flag stands besides the exception, no primitive works any more in this
entry, and what the body returns is dropped. When the answer comes the step runs from its top, and
the tool gets the answer where it waited.

It is right, and it is wasteful: the model is asked again for every turn before the question, the
tools before it run again, and after a swallowed suspension the body runs on for nothing until it
touches a primitive. `workflow.py` shows the form that does none of this.
"""

from __future__ import annotations

from examples.agent.messages import Conversation, ToolCall, ToolMessage, UserMessage
from examples.agent.model import next_turn
from examples.agent.tools import TOOLS, Question, stacked
from stepwell import step, step_hook, workflow


async def wait_in_tool(call: ToolCall) -> ToolMessage:
    """Wait for the visitor inside of the tool, under the middleware."""
    reply = await step_hook("visitor", key=call.id)
    return ToolMessage(call=call.id, text=reply["text"])


@workflow
async def assist_naively(wish: str) -> Conversation:
    """Help a visitor; gives the whole conversation."""
    return await converse_naively(wish)


@step
async def converse_naively(wish: str) -> Conversation:
    """Take model turns and run tools until the model has nothing more to do."""
    run_tool = stacked({**TOOLS, "ask_visitor": wait_in_tool})
    conversation = Conversation(transcript=(UserMessage(text=wish),))
    while True:
        while (call := conversation.next_call()) is not None:
            result = await run_tool(call)
            assert not isinstance(result, Question)
            conversation = conversation.said(result)
        turn = await next_turn(conversation)
        conversation = conversation.said(turn)
        if not turn.calls:
            return conversation
