"""How what code asks for differs from what a history records, in words for the code's author.

Pure. Names of ids tell most: a step whose input is recorded under another occurrence was shifted
by a call that is new, or gone; the rest is a comparison line by line, bounded in size.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import SequenceMatcher

from stepwell.core import events as e
from stepwell.core.commands import CANCEL_OF_CHILD

#: Lines of a comparison, around the first difference; characters of a line; of a digest.
_MOST = 12
_AROUND = 3
_WIDTH = 120
_DIGEST = 8

#: What there is under an id: its kind, and a step's input digest.
Line = tuple[str, str | None]
_ADVICE = (
    'guard the change with patched("...") for runs that are under way, and give calls of one name '
    'keys (with_options(key="...")), which do not shift'
)


def recorded_lines(history: Iterable[e.Event]) -> dict[str, Line]:
    """What a history records of the workflow's own doing, by id, in the order of its events."""
    lines: dict[str, Line] = {}
    for event in history:
        step, hook = getattr(event, "step", None), getattr(event, "hook", None)
        if hook is not None:
            if step is None:
                lines.setdefault(hook, ("hook", None))
        elif step is not None:
            lines.setdefault(step, ("step", getattr(event, "digest", None)))
        elif (mapped := getattr(event, "map", None)) is not None:
            lines.setdefault(mapped, ("map", None))
        elif (timer := getattr(event, "timer", None)) is not None:
            lines.setdefault(timer, ("timer", None))
        elif isinstance(event, e.ChildCancelRequested):
            lines.setdefault(f"!{event.child}", (CANCEL_OF_CHILD, None))
        elif (child := getattr(event, "child", None)) is not None:
            lines.setdefault(child, ("child", None))
    return lines


def shifted(identity: str, digest: str, recorded: Mapping[str, Line]) -> str:
    """Why a step that is asked for with another input than recorded may be; "" if nothing tells."""
    stem, _, place = identity.rpartition(":")
    if not place.isdigit():
        return ""
    for other, (_, known) in recorded.items():
        before, _, where = other.rpartition(":")
        if known != digest or before != stem or not where.isdigit() or other == identity:
            continue
        change = "removed" if int(where) > int(place) else "inserted"
        return (
            f"a call was {change} before {identity!r}: what the code asks for there is recorded as "
            f"{other!r}, so the calls of this name have shifted; {_ADVICE}"
        )
    return (
        f"either the input of {identity!r} has changed, or a call of this name was inserted or "
        f"removed before it; {_ADVICE}"
    )


def moved(left: str, recorded: Mapping[str, Line], asked: Mapping[str, str | None]) -> str:
    """Where a step that is recorded and not asked for went to; "" if nothing tells."""
    kind, digest = recorded.get(left, ("", None))
    if kind != "step":
        return ""
    for other, wanted in asked.items():
        if wanted == digest and _name(other) == _name(left) and other not in recorded:
            return (
                f"{left!r} is recorded and {other!r} is asked for, with the same name and input: the "
                f"call was moved, or another was inserted or removed before it; {_ADVICE}"
            )
    stem, _, place = left.rpartition(":")
    if place.isdigit() and int(place) > 1 and f"{stem}:{int(place) - 1}" in asked:
        last = f"{stem}:{int(place) - 1}"
        return (
            f"{last!r} is the last call of its name that the code makes: one was removed; {_ADVICE}"
        )
    return ""


def compared(recorded: Mapping[str, Line], asked: Mapping[str, Line]) -> str:
    """What is recorded (-) against what is asked for (+), around the first difference."""
    before = [_shown(*each) for each in recorded.items()]
    after = [_shown(*each) for each in asked.items()]
    lines = list(_marked(before, after))
    first = next((n for n, line in enumerate(lines) if line[0] != " "), None)
    if first is None:
        return ""
    start = max(first - _AROUND, 0)
    shown = lines[start : start + _MOST]
    left = len(lines) - start - len(shown)
    head = ["  ..."] if start else []
    tail = [f"  ... and {left} more"] if left else []
    return "\n".join([*head, *shown, *tail])


def _marked(before: Sequence[str], after: Sequence[str]) -> Iterable[str]:
    # Junk is looked for only in long sequences, and no call is junk.
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    for tag, i, j, m, n in matcher.get_opcodes():
        if tag == "equal":
            yield from (f"  {each}" for each in before[i:j])
            continue
        yield from (f"- {each}" for each in before[i:j])
        yield from (f"+ {each}" for each in after[m:n])


def _shown(identity: str, line: Line) -> str:
    kind, digest = line
    text = f"{kind} {identity!r}"
    told = f"{text} with input {digest[:_DIGEST]}" if digest else text
    return told if len(told) <= _WIDTH else f"{told[: _WIDTH - 1]}…"


def _name(identity: str) -> str:
    """The name in an id, without scope, occurrence and key."""
    unkeyed = identity.partition("=")[0]
    return unkeyed.rpartition("/")[2].partition(":")[0]
