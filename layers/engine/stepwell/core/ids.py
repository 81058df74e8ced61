"""Identities inside a run. They depend neither on time nor on what ran before what.

A step, hook or timer is known by its scope path, its name and its occurrence in that scope
(`1.2/charge:3`; the root scope has no path), or by the key its author gave: a step by
`charge=order-7`, a hook by `approval@order-7`, so that the two never meet. A scope is that of an
asyncio task, numbered in its parent's; `g1` is the closing of an abandoned generator. A map counts
as its step's name and `*` (`charge*:1`), and its items follow with their index or key
(`charge*:1#0`). A hook inside a step also carries the step's id (`review:1>approval:1`). Names
cannot hold the characters that separate the parts; keys can hold anything, since they come last.
"""

from __future__ import annotations

import hashlib
import re

from stepwell.errors import DefinitionError, UsageError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,127}")
_KEY_LIMIT = 256
_NOTE_LIMIT = 1_000


def is_name(name: str) -> bool:
    """Whether a name can stand in an id."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def check_name(kind: str, name: str) -> str:
    """The name, if it can stand in an id. Raises `DefinitionError`."""
    if not is_name(name):
        raise DefinitionError(
            f"{kind} name {name!r}: use letters, digits, '_', '.', '-', "
            "beginning with a letter or '_', at most 128 characters"
        )
    return name


def check_key(kind: str, key: str) -> str:
    """The key, if it can stand in an id. Raises `DefinitionError`."""
    if not isinstance(key, str) or not 1 <= len(key) <= _KEY_LIMIT or not _encodable(key):
        raise DefinitionError(f"{kind} key {key!r}: give text of 1 to {_KEY_LIMIT} characters")
    return key


def _encodable(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def check_note(what: str, text: str | None) -> None:
    """Refuse a remark (a reason, an actor, a tag) that is too long for a record. `UsageError`."""
    if text is None:
        return
    if not isinstance(text, str) or len(text) > _NOTE_LIMIT or not _encodable(text):
        raise UsageError(f"{what}: give at most {_NOTE_LIMIT:,} characters of valid text")


def counted(scope: str, name: str, occurrence: int) -> str:
    """The id of the n-th use of a name in a scope."""
    return f"{scope}/{name}:{occurrence}" if scope else f"{name}:{occurrence}"


def keyed(name: str, key: str) -> str:
    """The id that an explicit key gives a hook, apart from all counted ones."""
    return f"{name}@{key}"


def keyed_step(name: str, key: str) -> str:
    """The id that an explicit key gives a step, apart from all counted ones and all hooks."""
    return f"{name}={key}"


def is_keyed_step(step: str) -> bool:
    """Whether a step's id is that of a key; items of maps are not, whatever their keys hold."""
    return "=" in step.partition("#")[0]


def item_id(map_id: str, item: str) -> str:
    """The id of one item of a map, by its index or key."""
    return f"{map_id}#{item}"


def again(identity: str, generation: int) -> str:
    """The id under which a hook is opened anew, whose row has been decided: `approve:1~2`.

    `identity` is the part after its step's id, if it has one. In front of a key, which may hold
    anything, it cannot be taken for another's.
    """
    if generation == 1:
        return identity
    name, at, key = identity.partition("@")
    return f"{name}~{generation}{at}{key}"


def without_generation(identity: str) -> tuple[str, int]:
    """What `again` was given, from what it gave."""
    name, at, key = identity.partition("@")
    name, _, generation = name.partition("~")
    return f"{name}{at}{key}", int(generation or 1)


def inside(step: str, identity: str) -> str:
    """The id of something that belongs to a step."""
    return f"{step}>{identity}"


def child_run_id(run: str, child: str, generation: int = 1) -> str:
    """The run id of a child: 32 hex digits. Each generation of one child id is another run."""
    return _derived(f"child:{run}:{generation}:{child}")


def next_run_id(run: str) -> str:
    """The run id under which a run goes on as a new one: 32 hex digits."""
    return _derived(f"next:{run}")


def derived_seed(seed: str, run: str) -> str:
    """The seed of a run that another one starts."""
    return _derived(f"seed:{seed}:{run}")


def run_id_for(workflow: str, idempotency_key: str) -> str:
    """The run id that a workflow and an idempotency key stand for: 32 hex digits."""
    text = f"{len(workflow)}:{workflow}:{idempotency_key}"
    return _derived(text)


def _derived(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]
