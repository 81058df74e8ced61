"""The rules: what each forbids in workflow code, and what to write instead.

Calls are known by the dotted name that their import gives them. A name that ends in `.` stands for
all that begins with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: What to write instead, by code.
ADVICE: Final[Mapping[str, str]] = {
    "SW101": "the clock differs on every replay: use stepwell.now()",
    "SW102": "randomness differs on every replay: use stepwell.random(), or draw in a step",
    "SW103": "a new id differs on every replay: use stepwell.uuid4()",
    "SW104": "this blocks the turn and is lost with it: use stepwell.sleep()",
    "SW105": "the outside answers otherwise on a replay: do this in a step",
    "SW106": "threads and processes run in no fixed order: do this in a step",
    "SW107": "the environment may change between turns: read it in a step, or pass it as input",
    "SW108": "a set has no fixed order: go through sorted(...), or keep a list",
    "SW109": "what a replay writes into the module, all runs share: keep it in a local variable",
    "SW110": "this is never awaited, so it does nothing: write await",
    "SW111": "this step is a def function and the workflow is async: write await {what}.aio(...)",
    "SW112": "this differs from process to process: compare and key by values",
    "SW113": "a replay does not run this again, so the variable stays as it was: give it back as "
    "the result",
}

_CALLS: Final[Mapping[str, tuple[str, ...]]] = {
    "SW101": (
        "time.time",
        "time.time_ns",
        "time.monotonic",
        "time.monotonic_ns",
        "time.perf_counter",
        "time.perf_counter_ns",
        "time.process_time",
        "time.localtime",
        "time.gmtime",
        "time.ctime",
        "datetime.datetime.now",
        "datetime.datetime.utcnow",
        "datetime.datetime.today",
        "datetime.date.today",
    ),
    "SW102": ("random.", "secrets.", "os.urandom", "os.getrandom", "numpy.random."),
    "SW103": ("uuid.uuid1", "uuid.uuid4", "uuid.getnode"),
    "SW104": ("time.sleep",),
    "SW105": (
        "open",
        "input",
        "io.open",
        "aiofiles.",
        "aiohttp.",
        "asyncio.create_subprocess_exec",
        "asyncio.create_subprocess_shell",
        "asyncio.open_connection",
        "asyncio.start_server",
        "asyncpg.",
        "boto3.",
        "botocore.",
        "ftplib.",
        "glob.",
        "grpc.",
        "http.client.",
        "httpx.",
        "imaplib.",
        "os.chmod",
        "os.listdir",
        "os.makedirs",
        "os.mkdir",
        "os.open",
        "os.popen",
        "os.remove",
        "os.rename",
        "os.replace",
        "os.rmdir",
        "os.scandir",
        "os.stat",
        "os.system",
        "os.unlink",
        "os.walk",
        "os.path.exists",
        "os.path.getmtime",
        "os.path.getsize",
        "os.path.isdir",
        "os.path.isfile",
        "psycopg.",
        "psycopg2.",
        "pymongo.",
        "redis.",
        "requests.",
        "shutil.",
        "smtplib.",
        "socket.",
        "sqlite3.",
        "subprocess.",
        "tempfile.",
        "urllib.request.",
        "urllib3.",
    ),
    "SW106": (
        "asyncio.run_coroutine_threadsafe",
        "asyncio.to_thread",
        "concurrent.futures.",
        "multiprocessing.",
        "os.fork",
        "threading.",
    ),
    "SW107": ("os.getenv", "os.getcwd", "os.getpid", "os.cpu_count", "platform.", "getpass."),
    "SW112": ("hash", "id"),
}

#: Values that are read, not called.
READS: Final[Mapping[str, str]] = {
    "os.environ": "SW107",
    "os.environb": "SW107",
    "sys.argv": "SW107",
}

#: Methods that say by their name alone what they do.
METHODS: Final[Mapping[str, str]] = {
    "run_in_executor": "SW106",
    "read_text": "SW105",
    "read_bytes": "SW105",
    "write_text": "SW105",
    "write_bytes": "SW105",
    "iterdir": "SW105",
    "rglob": "SW105",
}

#: Of modules that are forbidden as a whole, what is harmless: types, errors, seeded generators.
_HARMLESS: Final = frozenset(
    {
        "random.Random",
        "secrets.compare_digest",
        "shutil.Error",
        "socket.error",
        "socket.timeout",
        "subprocess.CalledProcessError",
        "threading.current_thread",
    }
)
_ERRORS = ("Error", "Exception", "Timeout", "Warning")


def broken_by_call(name: str) -> str | None:
    """The code of the rule that a call of a dotted name breaks."""
    if name in _HARMLESS or name.endswith(_ERRORS):
        return None
    for code, names in _CALLS.items():
        for each in names:
            if name == each or (each.endswith(".") and name.startswith(each)):
                return code
    return None


def advice(code: str, what: str) -> str:
    """What to write instead of something that breaks a rule."""
    return ADVICE[code].format(what=what)
