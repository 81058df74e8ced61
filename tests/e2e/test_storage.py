"""The contract suites of store, maps, streams and blobs, on the emulator's DynamoDB and S3."""

from __future__ import annotations

from tests.contract import test_blobs, test_maps, test_snapshots, test_store, test_streams
from tests.e2e.ports import laws_of, laws_of_deployments

globals().update(
    laws_of(test_store)
    | laws_of(test_blobs)
    | laws_of(
        test_maps,
        without=[  # these have storage of their own, on moto or in a file
            "test_a_change_whose_reply_is_lost_is_made_once",
            "test_a_put_whose_reply_is_lost_finds_itself",
            "test_the_limit_of_rows_in_a_file_may_be_lowered",
        ],
    )
    | laws_of_deployments(test_streams)
    | laws_of_deployments(test_snapshots)
)
