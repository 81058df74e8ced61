"""Runs cfn-lint on templates as CloudFormation gets them: after SAM's transform.

Only there does it see that a queue's visibility is shorter than its function's timeout, or what a
role that SAM writes itself may do. Needs the environment of the SAM CLI: `make validate`.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

from cfnlint.api import ManualArgs, lint
from samtranslator.translator.transform import transform
from samtranslator.yaml_helper import yaml_parse
from yaml import safe_dump

#: Where `sam deploy` would have put a folder or a template; the transform refuses what is local.
_UPLOADED = {
    "AWS::Serverless::Function": ("CodeUri", "s3://bucket/key"),
    "AWS::Serverless::LayerVersion": ("ContentUri", "s3://bucket/key"),
    "AWS::Serverless::Application": ("Location", "https://bucket.s3.amazonaws.com/key"),
}


class _NoManagedPolicies:
    """No role of ours is written by SAM, so none of its policies is looked up."""

    def load(self) -> dict[str, str]:
        return {}


def translated(path: Path) -> dict[str, Any]:
    """The template after SAM's transform."""
    template = yaml_parse(path.read_text())
    for resource in template["Resources"].values():
        if resource["Type"] in _UPLOADED:
            name, place = _UPLOADED[resource["Type"]]
            resource["Properties"][name] = place
    return transform(template, {}, _NoManagedPolicies())


def problems(path: Path) -> list[str]:
    """What cfn-lint finds in the translated template."""
    text = safe_dump(translated(path), sort_keys=False)
    found = lint(text, config=ManualArgs(regions=["us-east-1"]))
    return [f"{path}: {each.rule.id} {each.message}" for each in found]


def main(paths: list[str]) -> int:
    """Lint each template. 1 if anything was found."""
    # The transform counts what it did and warns that nobody collects it.
    logging.getLogger("samtranslator.metrics").setLevel(logging.ERROR)
    found = [problem for path in paths for problem in problems(Path(path))]
    print("\n".join(found) or f"{len(paths)} translated templates: nothing found")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
