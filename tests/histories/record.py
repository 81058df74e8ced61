"""`python -m tests.histories.record`: record the histories that have no file yet."""

from __future__ import annotations

from tests.histories.recordings import FOLDER, RECORDINGS, record_missing

if __name__ == "__main__":
    for path in record_missing(RECORDINGS):
        print(f"recorded {path.relative_to(FOLDER.parent)}")
