"""AWS on this machine: starts ministack on loopback, with IAM enforced, and stops it."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import boto3

T = TypeVar("T")

REGION = "us-east-1"
#: Names the interpreter of the environment that ministack is installed in.
INTERPRETER = "STEPWELL_EMULATOR_PYTHON"
#: The emulator's root key: may do anything.
KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}


@dataclass(frozen=True, kw_only=True)
class Emulator:
    """A running emulator."""

    endpoint: str
    folder: Path

    @property
    def log(self) -> Path:
        """What it and the functions wrote."""
        return self.folder / "log"

    @property
    def certificate(self) -> Path:
        """What it signs its side of TLS with, by itself."""
        return self.folder / "ministack-tls" / "server.crt"

    def trust(self) -> ssl.SSLContext:
        """Trust in its certificate, and in no other."""
        return ssl.create_default_context(cafile=self.certificate)

    def environment(self) -> dict[str, str]:
        """What makes a tool of AWS talk to the emulator, and to nothing else."""
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith("AWS_")},
            **KEYS,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_CA_BUNDLE": str(self.certificate),
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        }

    def session(self) -> boto3.session.Session:
        """A session with the root key. Clients still need `endpoint_url`."""
        return boto3.session.Session(
            aws_access_key_id=KEYS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=KEYS["AWS_SECRET_ACCESS_KEY"],
            region_name=REGION,
        )

    def client(self, service: str) -> Any:
        """A client of a service, with the root key."""
        return self.session().client(
            service, endpoint_url=self.endpoint, verify=str(self.certificate)
        )

    def stand(self, seconds: float | None) -> None:
        """Let the clocks of SQS and Scheduler stand at this time, or go with the machine's."""
        _replace(self.folder / "stands", seconds)

    def put_scheduler_ahead(self, seconds: float | None) -> None:
        """Let Scheduler be ahead of SQS, or go with it again."""
        _replace(self.folder / "ahead", seconds)


def _replace(file: Path, number: float | None) -> None:
    if number is None:
        file.unlink(missing_ok=True)
        return
    new = file.with_suffix(".new")
    new.write_text(repr(number))
    new.replace(file)


def until(what: str, look: Callable[[], T | None], *, within: float = 30.0) -> T:
    """What `look` gives as soon as it gives something. Fails after so many seconds."""
    deadline = time.monotonic() + within
    while (found := look()) is None:
        assert time.monotonic() < deadline, f"not within {within} s: {what}"
        time.sleep(0.05)
    return found


@contextmanager
def running(folder: Path, **environment: str) -> Iterator[Emulator]:
    """An emulator that keeps its files in the folder, for as long as it is needed.

    The environment is handed on to the functions that it runs.
    """
    folder.mkdir(parents=True, exist_ok=True)
    port = _free_port()
    emulator = Emulator(endpoint=f"https://127.0.0.1:{port}", folder=folder)
    settings = {
        "AUTH": "true",
        "BIND_HOST": "127.0.0.1",
        "GATEWAY_PORT": str(port),
        "USE_SSL": "1",  # the bucket's policy asks for it
        "IOT_MTLS_ENABLED": "0",
        "SFTP_ENABLED": "0",
        "LAMBDA_EXECUTOR": "local",
        "STATE_DIR": str(folder / "state"),
        "TMPDIR": str(folder),
        "HOME": str(folder),
    }
    keep = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    command = [os.environ[INTERPRETER], str(Path(__file__).with_name("emulator_process.py"))]
    with emulator.log.open("wb") as log:
        process = subprocess.Popen(
            [*command, str(folder)],
            env={**keep, **settings, **KEYS, **environment},
            cwd=folder,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        until("the emulator answers", lambda: _answers(process, emulator))
        yield emulator
    finally:
        # It and the functions that it runs, whatever they are at: nothing of it is needed any more.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _answers(process: subprocess.Popen[bytes], emulator: Emulator) -> bool | None:
    assert process.poll() is None, emulator.log.read_text()
    health = f"{emulator.endpoint}/_ministack/health"
    try:
        with urllib.request.urlopen(health, timeout=5, context=emulator.trust()) as reply:
            return True if reply.status == 200 else None
    except OSError:  # not there yet, or its certificate is not
        return None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
