"""A review that waits for a person after three drafts, as a stream.

A writer sends drafts to a stream run of its own; the review looks at each, and after the third it
is suspended until an editor decides. What comes meanwhile is held. The workflow that publishes the
text shows what it waits for, and goes on by itself.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from examples.outside import outside
from stepwell import (
    RetryPolicy,
    current,
    emit,
    get_checkpoint,
    get_current_signal,
    run_stream_workflow,
    save_checkpoint,
    set_result,
    step,
    stream_step,
    stream_workflow,
    suspend,
    terminate,
    workflow,
)

#: Drafts after which a person has to look.
PATIENCE = 3
STREAM = "review"
PATIENT = RetryPolicy(max_attempts=3, initial="1s")


class Draft(BaseModel):
    """A text to be looked at."""

    text: str = Field(min_length=1)


class Decision(BaseModel):
    """What the editor says."""

    approved: bool
    editor: str


@step(name="review.remarks", retry=PATIENT)
async def remarks(text: str) -> list[str]:
    """What there is to say of a draft. In earnest a reader is asked, who wants to be paid."""
    outside().request("draft looked at", current.idempotency_key, text)
    found = []
    if len(text.split()) < 3:
        found.append("too short")
    if text.upper() == text:
        found.append("too loud")
    return found


@stream_workflow(name=STREAM)
async def review() -> None:
    """A review of one text. Everything happens in its step."""


@stream_step(
    stream=STREAM,
    signals={"draft.sent": Draft, "editor.decided": Decision},
    name="reviewer",
    on_failure="block",
)
async def reviewer() -> None:
    """Say something of each draft; let an editor decide in the end."""
    signal = await get_current_signal()
    state: dict[str, Any] = (await get_checkpoint()) or {"drafts": [], "remarks": []}
    if signal is None:
        return
    if signal.signal_type == "draft.sent":
        text = signal.payload["text"]
        state["drafts"].append(text)
        state["remarks"].append(await remarks(text))
        await save_checkpoint(state)
        if len(state["drafts"]) >= PATIENCE:
            await suspend(f"an editor has to look at {text!r}", resume_signals=["editor.decided"])
        return
    await set_result(
        {
            "text": state["drafts"][-1] if signal.payload["approved"] else None,
            "remarks": state["remarks"],
            "editor": signal.payload["editor"],
        }
    )
    await terminate()


@step(name="review.publish", retry=PATIENT)
async def publish(text: str) -> str:
    """Put the text where people read it."""
    outside().request("published", current.idempotency_key, text)
    return f"published: {text}"


@workflow(name="publication")
async def publication(title: str, first: str) -> str:
    """Have a text reviewed, and publish it if the editor wants it."""

    async def send_first() -> None:
        await emit(STREAM, "draft.sent", Draft(text=first))

    result = await run_stream_workflow(review, stream_run_id=title, init=send_first)
    outcome = result.get_result("reviewer")
    if outcome["text"] is None:
        return f"turned down by {outcome['editor']}"
    return await publish(outcome["text"])
