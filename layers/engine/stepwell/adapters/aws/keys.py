"""Keys of the one table. No id can cross into another's range, whatever characters it holds.

| pk | sk | item |
|---|---|---|
| `L#dead-letters` | `<time>#<message>` | a message that nobody could handle |
| `P#<run>#<map>#<order>#<shard>` | `A` | shard of a dispatched map, or its top (`T`) |
| `P#<run>#<map>#<order>#<shard>` | `I#<12-digit n>` | item n of that map |
| `R#<run>` | `A` | header |
| `R#<run>` | `D#<step>` | dispatched step |
| `R#<run>` | `E#<12-digit n>` | commit whose first event is n |
| `R#<run>` | `H#<hook>` | hook |
| `R#<run>` | `I#<entry>` | entry of the inbox |
| `R#<run>` | `K#<step>` | checkpoint |
| `R#<run>` | `O#<step>#<12-digit n>` | output row n |
| `T#<stream>#<stream run>` | `C` | how far a stream run has come |
| `T#<stream>#<stream run>` | `D#<signal>` | the number of a signal that is remembered |
| `T#<stream>#<stream run>` | `G#<12-digit n>` | batch of signals whose first is n |
| `T#<stream>#<stream run>` | `S#<step>` | subscription |
| `W` | `<workflow>` | name of a workflow that has had a run or was published |
| `W#<workflow>` | `V#<digest>` | published definition |
| `W#<workflow>` | `current` | the current one of them |

A run is loaded as the range from `A` to the last `I#`; the others sort after it. A subscription is
loaded as two: from `A` to the last `D#`, and from the commit of its snapshot to the last `I#`.
"""

from __future__ import annotations

import hashlib
import re

from stepwell.core.map_rows import TOP, ShardKey
from stepwell.core.signals import StreamKey

#: DynamoDB's limits, in bytes.
PARTITION_KEY_LIMIT = 2048
SORT_KEY_LIMIT = 1024
#: Partitions that the entries of one index are spread over. Never to be lowered: what the higher
#: ones hold would be listed no more.
SHARDS = 4
HEADER = "A"
#: The last sort key of a load: `$` follows `#`, so every `I#…` is below it.
LOAD_END = "I$"
#: The last sort key of what stands before the commits: header and dispatched steps.
STEPS_END = "D$"
STREAM_HEAD = "C"
SHARD_ROW = "A"
WORKFLOWS = "W"
CURRENT = "current"
DEAD_LETTERS = "L#dead-letters"

_UNSAFE = re.compile(r"[#%\x00-\x1f\x7f]")
_DIGITS = 12
_LARGEST = 10**_DIGITS - 1


def encode(text: str, limit: int) -> str:
    """A key part of at most `limit` bytes that holds no `#`; different for different texts.

    What is too long keeps its beginning and ends with `%~` and a hash; `%~` stands in no other.
    """
    encoded = _UNSAFE.sub(lambda found: f"%{ord(found[0]):02X}", text)
    data = encoded.encode()
    if len(data) <= limit:
        return encoded
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f"{data[: limit - len(digest) - 2].decode(errors='ignore')}%~{digest}"


def run_key(run_id: str) -> str:
    """The partition of a run."""
    return f"R#{encode(run_id, PARTITION_KEY_LIMIT - 2)}"


def step_key(step: str) -> str:
    """The sort key of a dispatched step."""
    return f"D#{encode(step, SORT_KEY_LIMIT - 2)}"


def commit_key(first: int) -> str:
    """The sort key of a commit; keys sort as numbers do."""
    return f"E#{_number(first)}"


def commit_first(key: str) -> int:
    """The number in a commit's sort key."""
    return int(key.removeprefix("E#"))


def hook_key(hook_id: str) -> str:
    """The sort key of a hook."""
    return f"H#{encode(hook_id, SORT_KEY_LIMIT - 2)}"


def inbox_key(entry_id: str) -> str:
    """The sort key of an entry of the inbox."""
    return f"I#{encode(entry_id, SORT_KEY_LIMIT - 2)}"


def checkpoint_key(step: str) -> str:
    """The sort key of a step's checkpoint."""
    return f"K#{encode(step, SORT_KEY_LIMIT - 2)}"


def chunk_key(step: str, position: int) -> str:
    """The sort key of an output row; the rows of a step sort by position."""
    return f"O#{encode(step, SORT_KEY_LIMIT - 3 - _DIGITS)}#{_number(position)}"


def last_chunk_key(step: str) -> str:
    """The highest sort key that an output row of the step can have."""
    return chunk_key(step, _LARGEST)


def workflow_key(workflow: str) -> str:
    """The sort key of a workflow's name."""
    return encode(workflow, SORT_KEY_LIMIT)


def definition_key(workflow: str) -> str:
    """The partition of a workflow's definitions."""
    return f"W#{encode(workflow, PARTITION_KEY_LIMIT - 2)}"


def digest_key(digest: str) -> str:
    """The sort key of a definition."""
    return f"V#{encode(digest, SORT_KEY_LIMIT - 2)}"


def shard_of(run_id: str) -> int:
    """The shard that a run and its hooks are indexed in."""
    return hashlib.sha256(run_id.encode()).digest()[0] % SHARDS


def shard_key(group: str, shard: int) -> str:
    """The partition of an index that holds one shard of a group: a workflow, a status."""
    return f"{encode(group, PARTITION_KEY_LIMIT - 4)}#{shard}"


def map_key(key: ShardKey) -> str:
    """The partition of one shard of a dispatched map."""
    shard = "T" if key.shard == TOP else str(key.shard)
    limit = (PARTITION_KEY_LIMIT - 2 - _DIGITS - _DIGITS - 3) // 2
    ids = f"{encode(key.run_id, limit)}#{encode(key.map, limit)}"
    return f"P#{ids}#{key.order}#{shard}"


def item_key(index: int) -> str:
    """The sort key of an item of a map; keys sort as numbers do."""
    return f"I#{_number(index)}"


def items_after() -> str:
    """What all items of a map sort after."""
    return "I#"


def stream_partition(key: StreamKey) -> str:
    """The partition of a stream run."""
    limit = (PARTITION_KEY_LIMIT - 3) // 2
    return f"T#{encode(key.stream, limit)}#{encode(key.run, limit)}"


def signal_key(signal_id: str) -> str:
    """The sort key of what is remembered of a signal."""
    return f"D#{encode(signal_id, SORT_KEY_LIMIT - 2)}"


def batch_key(first: int) -> str:
    """The sort key of a batch of signals; keys sort as numbers do."""
    return f"G#{_number(first)}"


def batch_first(key: str) -> int:
    """The number in a batch's sort key."""
    return int(key.removeprefix("G#"))


def last_batch_key() -> str:
    """The highest sort key that a batch can have."""
    return batch_key(_LARGEST)


def subscription_key(step: str) -> str:
    """The sort key of a subscription."""
    return f"S#{encode(step, SORT_KEY_LIMIT - 2)}"


def subscriptions_after() -> str:
    """What the sort keys of all subscriptions begin with."""
    return "S#"


def _number(number: int) -> str:
    if not 0 <= number <= _LARGEST:
        raise ValueError(f"{number} does not fit a key of {_DIGITS} digits")
    return f"{number:0{_DIGITS}}"
