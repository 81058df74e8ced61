"""Conditions of the adapters on AWS that only show when somebody else comes in between."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError

from stepwell.adapters.aws.queue import give_back
from tests.contract.given import run
from tests.contract.messaging import open_messaging


def test_giving_back_to_a_queue_that_is_not_there_is_no_stale_receipt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with open_messaging(monkeypatch) as aws:
        gone = aws.run_url.replace("run.fifo", "gone.fifo")
        with pytest.raises(ClientError, match="NonExistentQueue"):
            run(give_back(aws.clients, gone, "receipt", 0))
