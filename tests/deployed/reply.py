"""What an HTTP API has said."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Reply:
    """An HTTP reply. Names of headers are in small letters."""

    status: int
    headers: dict[str, str]
    body: str

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)
