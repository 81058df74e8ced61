"""Large values, in a bucket: one object per value, under whose it is and its hash."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from botocore.exceptions import ClientError

from stepwell.adapters.aws.clients import Clients, error_code
from stepwell.engine.ports import BlobMissing, TransientError


class S3Blobs:
    """Implements the `Blobs` port. What stands under a hash is never replaced.

    The role needs `s3:ListBucket` on the bucket: without it S3 answers 403 for a missing object,
    which cannot be told from a permission that is missing.
    """

    def __init__(self, clients: Clients, bucket: str, *, prefix: str = "values") -> None:
        self._clients = clients
        self._bucket = bucket
        self._prefix = prefix

    async def put(self, sha256: str, data: bytes) -> None:
        """Store bytes under the hash of the value they carry, unless they are there."""
        await self._clients.call(self._put, sha256, data)

    async def delete_all(self, owner: str) -> None:
        """Delete all whose keys begin with `owner/`."""
        await self._clients.call(self._delete_all, owner)

    async def get(self, sha256: str) -> bytes:
        """The bytes. Raises `BlobMissing` if they are not there."""
        return await self._clients.call(self._get, sha256)

    def _put(self, sha256: str, data: bytes) -> None:
        try:
            reply = self._clients.s3.put_object(
                Bucket=self._bucket, Key=self._key(sha256), Body=data, IfNoneMatch="*"
            )
        except ClientError as error:
            code = error_code(error)
            if code == "ConditionalRequestConflict":  # another put or delete of it is under way
                raise TransientError(f"AWS: {error}") from error
            if code != "PreconditionFailed":
                raise
        else:
            _check(reply)

    def _delete_all(self, owner: str) -> None:
        prefix = self._key(f"{owner}/")
        while True:
            found = self._clients.s3.list_objects_v2(Bucket=self._bucket, Prefix=prefix)
            keys: Any = [{"Key": each["Key"]} for each in found.get("Contents", ())]
            if not keys:
                return
            reply = self._clients.s3.delete_objects(
                Bucket=self._bucket, Delete={"Objects": keys, "Quiet": True}
            )
            if reply.get("Errors"):
                raise TransientError(f"AWS: {reply['Errors'][0].get('Code')} while deleting values")

    def _get(self, sha256: str) -> bytes:
        try:
            found = self._clients.s3.get_object(Bucket=self._bucket, Key=self._key(sha256))
        except ClientError as error:
            if error_code(error) != "NoSuchKey":
                raise
            raise BlobMissing(sha256) from None
        # As its own context manager it would be the bare stream, which checks nothing.
        with closing(found["Body"]) as body:
            _check(found)
            return body.read()

    def _key(self, sha256: str) -> str:
        return f"{self._prefix}/{sha256}"


def _check(reply: Any) -> None:
    """Raise `TransientError` for a reply that is not S3's: the rest of a success may be empty."""
    if "ETag" not in reply:
        raise TransientError("AWS: what answered for S3 was something else")
