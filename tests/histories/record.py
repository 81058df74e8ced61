"""`python -m tests.histories.record`: record the histories that have no file yet."""

from __future__ import annotations

from tests.histories.recordings import FOLDER, RECORDINGS, record_missing
from tests.histories.streams import record_missing_streams

if __name__ == "__main__":
    for path in [*record_missing(RECORDINGS), *record_missing_streams()]:
        print(f"recorded {path.relative_to(FOLDER.parent)}")
