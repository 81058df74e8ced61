"""The agent's tools, and the middleware that every tool call goes through.

The middleware is of the common, hostile kind: whatever a tool raises becomes a message to the
model, also what was never meant for it. So a tool that needs a human does not raise: it returns a
`Question`, which passes every layer as any result does, and the step waits at its own boundary.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from examples.agent.messages import ToolCall, ToolMessage
from examples.outside import outside
from stepwell import current


@dataclass(frozen=True, slots=True)
class Question:
    """A tool's result that says: a human has to answer this call."""

    call: ToolCall


Handler = Callable[[ToolCall], Awaitable[ToolMessage | Question]]
Middleware = Callable[[ToolCall, Handler], Awaitable[ToolMessage | Question]]


async def find_flights(call: ToolCall) -> ToolMessage:
    """Fails, as tools do: the model reads the error and goes on."""
    outside().request("search", _key(call), str(call.arguments["to"]))
    raise ConnectionError("the second airline does not answer; SK 12 and DY 7 are known")


async def hold_seat(call: ToolCall) -> ToolMessage:
    """Has an effect outside, so it must not run again when the conversation is resumed."""
    receipt = outside().request("seat held", _key(call), str(call.arguments["flight"]))
    return ToolMessage(call=call.id, text=f"held, {receipt}")


async def ask_visitor(call: ToolCall) -> Question:
    """Only the visitor can answer this."""
    return Question(call)


def _key(call: ToolCall) -> str:
    return f"{current.idempotency_key}/{call.id}"


async def ignore_errors(call: ToolCall, handler: Handler) -> ToolMessage | Question:
    """Turn everything that is raised, whatever it is, into a message for the model."""
    try:
        return await handler(call)
    except BaseException as error:
        return ToolMessage(call=call.id, text=f"error: {error or type(error).__name__}")


async def note_call(call: ToolCall, handler: Handler) -> ToolMessage | Question:
    """Count tool runs."""
    outside().request("tool run", _key(call), call.tool)
    return await handler(call)


TOOLS: dict[str, Handler] = {
    "find_flights": find_flights,
    "hold_seat": hold_seat,
    "ask_visitor": ask_visitor,
}


def stacked(tools: dict[str, Handler]) -> Handler:
    """The tools behind the middleware: outermost `note_call`, then `ignore_errors`."""

    async def tool(call: ToolCall) -> ToolMessage | Question:
        return await tools[call.tool](call)

    async def guarded(call: ToolCall) -> ToolMessage | Question:
        return await ignore_errors(call, tool)

    async def noted(call: ToolCall) -> ToolMessage | Question:
        return await note_call(call, guarded)

    return noted
