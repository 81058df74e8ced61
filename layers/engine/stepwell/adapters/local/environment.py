"""The local client that the environment names."""

from __future__ import annotations

import os

from stepwell.adapters.local.runtime import LocalEngine
from stepwell.client import Client
from stepwell.errors import UsageError

#: The file of the local engine.
DB_VARIABLE = "STEPWELL_DB"
#: What command line tools use when nothing names a file.
DEFAULT_DB = ".stepwell/stepwell.db"

_open: dict[str, LocalEngine] = {}


def client_from_env() -> Client:
    """The client on the file that `STEPWELL_DB` names; opened once per process."""
    path = os.environ.get(DB_VARIABLE)
    if not path:
        raise UsageError(f"set {DB_VARIABLE} to the file of a local engine, or make a client")
    if path not in _open:
        _open[path] = LocalEngine.open(path)
    return _open[path].client
