"""The keys that sign tokens: read from Secrets Manager, and read again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from botocore.exceptions import ClientError

from stepwell.adapters.aws.secret import FRESH, KeySecret
from stepwell.adapters.aws.session import open_session
from stepwell.adapters.local.clock import SkippingClock
from stepwell.engine.ports import TransientError
from stepwell.errors import UsageError
from tests.contract.given import START
from tests.contract.messaging import REGION
from tests.contract.storage import Storage, faulty_moto

ONE = '{"k1": "a-secret-of-enough-letters"}'
TWO = '{"k1": "a-secret-of-enough-letters", "k2": "another-of-enough-letters"}'


@dataclass
class Given:
    secret: KeySecret
    clock: SkippingClock
    client: Any

    def put(self, text: str) -> None:
        self.client.put_secret_value(SecretId="keys", SecretString=text)

    def fail(self, *kinds: str) -> None:
        self.secret.keyring  # noqa: B018 - so that there is a client
        Storage.fault(None, self.secret._client, "GetSecretValue", *kinds)  # type: ignore[arg-type]


@pytest.fixture
def given() -> Iterator[Given]:
    with faulty_moto():
        session = open_session(region=REGION)
        client = session.create_client("secretsmanager")
        client.create_secret(Name="keys", SecretString=ONE)
        clock = SkippingClock(START)
        yield Given(KeySecret(session, "keys", clock), clock, client)


def test_a_new_key_is_seen_after_five_minutes(given: Given) -> None:
    assert given.secret.refresh().newest == "k1"
    given.put(TWO)
    given.clock.advance(FRESH - 1)
    assert given.secret.refresh().newest == "k1"
    given.clock.advance(1)
    assert given.secret.refresh().newest == "k2"


def test_a_token_of_an_unknown_key_has_the_keys_read_at_most_once_a_minute(given: Given) -> None:
    given.secret.refresh()
    given.put(TWO)
    assert list(given.secret.refresh("k2.r.h.m").keys) == ["k1"]
    given.clock.advance(60_000)
    assert list(given.secret.refresh("k1.r.h.m").keys) == ["k1"]
    assert list(given.secret.refresh("k2.r.h.m").keys) == ["k1", "k2"]


def test_the_keys_stand_while_aws_cannot_be_reached(given: Given) -> None:
    given.fail(*["500"] * 4)
    given.clock.advance(FRESH)
    assert given.secret.refresh().newest == "k1"


def test_a_permission_that_is_missing_is_told(given: Given) -> None:
    given.fail("denied")
    given.clock.advance(FRESH)
    with pytest.raises(ClientError, match="AccessDenied"):
        given.secret.refresh()


SPOILT = ["{}", "no json: " + ONE, f"[{ONE}]", '{"k1": 7}', '{"k1": "a-short-one"}']


@pytest.mark.parametrize("text", SPOILT)
def test_the_keys_stand_while_the_secret_is_spoilt(
    given: Given, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    known = given.secret.keyring
    given.put(text)
    given.clock.advance(FRESH)
    assert given.secret.refresh() is known
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "'keys'" in caplog.text
    assert "a-secret" not in caplog.text
    assert "a-short" not in caplog.text
    given.clock.advance(FRESH - 1)
    assert given.secret.refresh() is known
    assert len(caplog.records) == 1
    given.put(TWO)
    given.clock.advance(1)
    assert given.secret.refresh().newest == "k2"


@pytest.mark.parametrize("text", SPOILT)
def test_without_any_keys_a_spoilt_secret_is_refused(given: Given, text: str) -> None:
    given.put(text)
    with pytest.raises(UsageError, match="'keys'"):
        given.secret.refresh()


def test_a_secret_that_is_not_there_is_told(given: Given) -> None:
    session = open_session(region=REGION)
    with pytest.raises(ClientError, match="ResourceNotFound"):
        KeySecret(session, "other", given.clock).refresh()


def test_without_any_keys_a_failure_in_passing_is_one(given: Given) -> None:
    session = open_session(region=REGION)
    fresh = KeySecret(session, "keys", given.clock)
    fresh._client = session.create_client("secretsmanager")
    Storage.fault(None, fresh._client, "GetSecretValue", *["500"] * 9)  # type: ignore[arg-type]
    with pytest.raises(TransientError):
        fresh.refresh()
