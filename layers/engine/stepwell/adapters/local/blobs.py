"""Large values, in a table of the same file."""

from __future__ import annotations

from stepwell.adapters.local.database import Database
from stepwell.engine.ports import BlobMissing


class SqliteBlobs:
    """Implements the `Blobs` port. What stands under a hash is never replaced."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, sha256: str, data: bytes) -> None:
        """Store bytes under the hash of the value they carry."""
        self._database.change(
            "INSERT INTO blobs (sha256, data) VALUES (?, ?) ON CONFLICT (sha256) DO NOTHING",
            sha256,
            data,
        )

    async def delete_all(self, owner: str) -> None:
        """Delete all whose keys begin with `owner/`."""
        # As a range, so that the key's index is used: "0" follows "/".
        self._database.change(
            "DELETE FROM blobs WHERE sha256 > ? AND sha256 < ?", f"{owner}/", f"{owner}0"
        )

    async def get(self, sha256: str) -> bytes:
        """The bytes. Raises `BlobMissing` if they are not there."""
        rows = self._database.query("SELECT data FROM blobs WHERE sha256 = ?", sha256)
        if not rows:
            raise BlobMissing(sha256)
        data: bytes = rows[0][0]
        return data
