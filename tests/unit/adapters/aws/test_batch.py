"""What is logged of errors, and of events that are none: never what they quote."""

from __future__ import annotations

import pytest
from botocore.exceptions import ParamValidationError
from pydantic import TypeAdapter, ValidationError

from stepwell.adapters.aws.handlers.batch import log_error, records_of


def _validation_error() -> ValidationError:
    with pytest.raises(ValidationError) as raised:
        TypeAdapter(int).validate_python("a-secret")
    return raised.value


def _report(error: Exception, cause: Exception | None = None) -> None:
    try:
        raise error from cause
    except Exception as raised:
        log_error("not done: %s", raised)


def test_an_error_that_quotes_data_is_told_without_it(caplog: pytest.LogCaptureFixture) -> None:
    _report(_validation_error())
    _report(RuntimeError("because"), _validation_error())
    _report(ParamValidationError(report="a-secret"))
    assert "a-secret" not in caplog.text
    assert "not done: RuntimeError because of int: body: int_parsing" in caplog.text
    assert "ParamValidationError" in caplog.text


def test_an_error_that_was_raised_from_itself_in_the_end_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    outer, inner = RuntimeError("outer"), RuntimeError("inner")
    inner.__cause__ = outer
    _report(outer, inner)
    assert "not done: outer" in caplog.text
    assert "Traceback" in caplog.text


def test_an_event_that_is_no_batch_is_not_quoted() -> None:
    with pytest.raises(ValidationError) as raised:
        records_of({"Records": [{"body": "a-secret", "messageId": 5}]})
    assert "a-secret" not in str(raised.value)
