"""The table, the bucket and the secret."""

from __future__ import annotations

from typing import Any

import pytest
from pynamodb.models import Model

from stepwell.adapters.aws.items import TableItem
from tests.infra.templates import STORAGE, of_type

(TABLE,) = of_type(STORAGE, "AWS::DynamoDB::Table").values()
(BUCKET,) = of_type(STORAGE, "AWS::S3::Bucket").values()
(SECRET,) = of_type(STORAGE, "AWS::SecretsManager::Secret").values()


def _schema(model: type[Model]) -> dict[str, Any]:
    return dict(model._get_schema())


def _keys(schema: list[dict[str, str]]) -> dict[str, str]:
    return {each["AttributeName"]: each["KeyType"] for each in schema}


def _types(attributes: list[dict[str, str]]) -> dict[str, str]:
    return {each["AttributeName"]: each["AttributeType"] for each in attributes}


def test_the_table_has_the_keys_of_the_code() -> None:
    code = _schema(TableItem)
    assert _keys(TABLE["KeySchema"]) == _keys(code["key_schema"])
    assert _types(TABLE["AttributeDefinitions"]) == _types(code["attribute_definitions"])


def test_the_table_has_the_indexes_of_the_code() -> None:
    assert {
        each["IndexName"]: (_keys(each["KeySchema"]), each["Projection"])
        for each in TABLE["GlobalSecondaryIndexes"]
    } == {
        each["index_name"]: (_keys(each["key_schema"]), each["projection"])
        for each in _schema(TableItem)["global_secondary_indexes"]
    }


def test_partition_keys_come_first() -> None:
    """DynamoDB refuses a key schema in another order."""
    for schema in (TABLE, *TABLE["GlobalSecondaryIndexes"]):
        assert [each["KeyType"] for each in schema["KeySchema"]] == ["HASH", "RANGE"]


def test_the_table_forgets_by_the_attribute_of_the_code() -> None:
    assert TABLE["TimeToLiveSpecification"] == {
        "AttributeName": TableItem.expires_at.attr_name,
        "Enabled": True,
    }


def test_the_table_is_on_demand_and_can_go_back() -> None:
    assert TABLE["BillingMode"] == "PAY_PER_REQUEST"
    assert TABLE["PointInTimeRecoverySpecification"]["PointInTimeRecoveryEnabled"] is True


@pytest.mark.parametrize("name", ["Table", "Bucket", "Keys"])
def test_what_holds_data_stays(name: str) -> None:
    resource = STORAGE["Resources"][name]
    assert (resource["DeletionPolicy"], resource["UpdateReplacePolicy"]) == ("Retain", "Retain")


def test_the_bucket_is_closed_to_the_public_and_encrypted() -> None:
    assert all(BUCKET["PublicAccessBlockConfiguration"].values())
    assert len(BUCKET["PublicAccessBlockConfiguration"]) == 4
    assert BUCKET["BucketEncryption"]["ServerSideEncryptionConfiguration"]


def test_the_bucket_refuses_requests_without_tls() -> None:
    (policy,) = of_type(STORAGE, "AWS::S3::BucketPolicy").values()
    (statement,) = policy["PolicyDocument"]["Statement"]
    assert (statement["Effect"], statement["Principal"]) == ("Deny", "*")
    assert statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}


def test_no_value_expires_by_age() -> None:
    rules = BUCKET["LifecycleConfiguration"]["Rules"]
    assert not [rule for rule in rules if {"ExpirationInDays", "ExpirationDate"} & set(rule)]
    assert [rule for rule in rules if "AbortIncompleteMultipartUpload" in rule]


def test_the_secret_begins_with_one_key() -> None:
    made = SECRET["GenerateSecretString"]
    assert (made["SecretStringTemplate"], made["GenerateStringKey"]) == ("{}", "k1")
    assert made["PasswordLength"] >= 64
