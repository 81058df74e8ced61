"""A briefing that somebody has to sign off, as a script.

    $ python -m examples.briefing.script "tea, coffee"
    $ stepwell runs inbox put RUN approved --value '"Ada"' --db briefing/stepwell.db
    $ python -m examples.briefing.script --resume RUN
    $ stepwell hooks list --run RUN --db briefing/stepwell.db
    $ stepwell hooks resume TOKEN --payload '"On tea"' --db briefing/stepwell.db
    $ python -m examples.briefing.script --resume RUN

Facts that were gathered are not gathered again. What `audit` is asked before each step goes to
standard error, and it lets nothing secret out.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from stepwell import Run, Suspend, ask, current, step, step_guard, workflow

JOURNAL = "briefing"


@step_guard(name="briefing.audit")
def audit(payload: dict[str, Any]) -> dict[str, Any]:
    """Say what is about to be done; block what is about a secret."""
    if "secret" in str(payload["args"]):
        return {"power": "block", "reason": "that is nobody's business"}
    print(f"about to: {payload['key']}", file=sys.stderr)
    return {"power": "observe"}


@step(name="briefing.gather")
def gather(topic: str) -> dict[str, Any]:
    """What is known of a topic."""
    return {"topic": topic, "length": len(topic)}


@step(name="briefing.approve")
def approve(lines: list[str]) -> str:
    """Who signed it off. Waits for that."""
    by = current.run.inbox.get("approved")
    if not by:
        raise Suspend(f"waiting on sign-off of {len(lines)} lines")
    return str(by)


@workflow(name="briefing")
def briefing(topics: list[str]) -> str:
    """Gather what is known of each topic, have it signed off, and ask what it is called."""
    facts = gather.map(topics)
    lines = [f"{fact['topic']}: {fact['length']} letters" for fact in facts]
    by = approve(lines)
    title = ask("Which title shall it have?", schema=str)
    return f"{title}: {'; '.join(lines)} (signed off by {by})"


def main(arguments: Sequence[str], journal_dir: str = JOURNAL) -> Run[Any]:
    """Run it, or resume it; say how it stands."""
    if arguments[:1] == ["--resume"]:
        run = briefing.resume(arguments[1], journal_dir=journal_dir)
    else:
        topics = [each.strip() for each in arguments[0].split(",")]
        run = briefing.run(topics, journal_dir=journal_dir, prepare_step=audit)
    print(f"{run.id} is {run.status}: {run.result or run.error}")
    return run


if __name__ == "__main__":
    main(sys.argv[1:])
