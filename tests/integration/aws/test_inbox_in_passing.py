"""What AWS cannot do just now is no reason for the inbox to refuse a message."""

from __future__ import annotations

from stepwell.adapters.aws.clients import ATTEMPTS
from tests.integration.aws.deployment import Deployed


def test_what_cannot_be_done_now_is_given_back_and_not_refused(deployed: Deployed) -> None:
    deployed.send("inbox", {"type": "start", "workflow": "order", "input": {}})
    left = deployed.fault(deployed.aws.clients.sqs, "SendMessage", *["throttle"] * ATTEMPTS)
    assert len(deployed.deliver("inbox")) == 1
    assert left == []
    assert deployed.held("inbox-dead") == []
    assert len(deployed.held("inbox")) == 1
