"""What an agent's conversation is made of. Models, so that a transcript comes back as it was."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)


class ToolCall(_Frozen):
    """The model wants a tool run. `id` ties the tool's message to it."""

    id: str
    tool: str
    arguments: dict[str, Any] = {}


class UserMessage(_Frozen):
    """What the visitor asked for."""

    role: Literal["user"] = "user"
    text: str


class ModelMessage(_Frozen):
    """One turn of the model: text for the visitor, and the tools it wants run."""

    role: Literal["model"] = "model"
    text: str
    calls: tuple[ToolCall, ...] = ()


class ToolMessage(_Frozen):
    """What came of a tool call."""

    role: Literal["tool"] = "tool"
    call: str
    text: str


Message = Annotated[UserMessage | ModelMessage | ToolMessage, Field(discriminator="role")]


class Conversation(_Frozen):
    """The transcript, and the question to a human that holds it up.

    This is the step's whole state: from it alone the conversation goes on in another process.
    """

    transcript: tuple[Message, ...]
    pending: ToolCall | None = None

    def said(self, message: UserMessage | ModelMessage | ToolMessage) -> Conversation:
        """The conversation after one more message."""
        return Conversation(transcript=(*self.transcript, message))

    def held_up_by(self, call: ToolCall) -> Conversation:
        """The conversation, waiting for a human to answer this call."""
        return Conversation(transcript=self.transcript, pending=call)

    def next_call(self) -> ToolCall | None:
        """The first tool call that has no message yet."""
        answered = {message.call for message in self.transcript if message.role == "tool"}
        calls = (
            call for message in self.transcript if message.role == "model" for call in message.calls
        )
        return next((call for call in calls if call.id not in answered), None)

    def turns(self) -> int:
        """How many turns the model has taken."""
        return sum(message.role == "model" for message in self.transcript)
