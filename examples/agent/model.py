"""A scripted model: the n-th turn of a script, and a count of how often it was asked.

A real model would answer differently each time. The script does not, but nothing relies on that:
a turn that is in the transcript is never asked for again.
"""

from __future__ import annotations

from examples.agent.messages import Conversation, ModelMessage, ToolCall
from examples.outside import outside
from stepwell import current

SCRIPT = (
    ModelMessage(
        text="Let me look that up. ",
        calls=(ToolCall(id="call-1", tool="find_flights", arguments={"to": "Oslo"}),),
    ),
    ModelMessage(
        text="There are two flights. ",
        calls=(
            ToolCall(id="call-2", tool="hold_seat", arguments={"flight": "SK 12"}),
            ToolCall(id="call-3", tool="ask_visitor", arguments={"question": "Window or aisle?"}),
        ),
    ),
    ModelMessage(
        text="Noted. ",
        calls=(
            ToolCall(id="call-4", tool="ask_visitor", arguments={"question": "Shall I book it?"}),
        ),
    ),
    ModelMessage(text="Thank you, that is all."),
)


async def next_turn(conversation: Conversation) -> ModelMessage:
    """The model's next turn in this conversation."""
    turn = conversation.turns()
    outside().request("model turn", f"{current.run_id}/{turn + 1}", SCRIPT[turn].text)
    return SCRIPT[turn]
