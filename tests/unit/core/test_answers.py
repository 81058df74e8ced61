"""Answers against schemas."""

from __future__ import annotations

import json

from stepwell.core.answers import problems


def test_the_place_of_a_problem_is_a_json_pointer() -> None:
    schema = {"properties": {"a/b~c": {"items": {"type": "integer"}}}}
    (problem,) = problems(json.dumps(schema), '{"a/b~c": [1, "x"]}')
    assert problem["pointer"] == "/a~1b~0c/1"
