"""The contract suites of store and blobs, on the emulator's DynamoDB and S3."""

from __future__ import annotations

from tests.contract import test_blobs, test_store
from tests.e2e.ports import laws_of

globals().update(laws_of(test_store) | laws_of(test_blobs))
