"""What is found in workflow code without running it, and what is left alone."""

from __future__ import annotations

from textwrap import dedent

import pytest

from stepwell.lint import Unreadable, check_source

HEAD = """\
import asyncio, glob, os, random, secrets, socket, subprocess, sys, threading, time, uuid
import datetime as dt
import numpy as np
import requests
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime as d
from pathlib import Path
from time import sleep as nap
import stepwell
from stepwell import current, hook, sleep, step, workflow

CACHE = {}
SEEN: list[str] = []
LIMIT = 3

@step
async def charge(n): return time.time(), requests.get("x"), CACHE.update(a=1)

@step
def plain(n): return open("x")

def helper(): return deeper()
def deeper(): return random.random()
def unused(): return random.random()
"""
FIRST = HEAD.count("\n") + 1


def found(body: str, *, head: str = "@workflow\nasync def flow(x=None):\n") -> list[str]:
    """The codes that a workflow of this body breaks."""
    text = HEAD + head + "".join(f"    {line}\n" for line in dedent(body).strip().splitlines())
    return [each.code for each in check_source(text, "app.py")]


#: A function of the workflow's own, and a call that runs it as a step.
INNER = "async def inner():\n"
RUN = "await current.step('inner', inner)"

BREAKING = [
    ("SW101", "return time.time()"),
    ("SW101", "return d.now()"),
    ("SW101", "return dt.datetime.now(dt.UTC)"),
    ("SW101", "return dt.date.today()"),
    ("SW101", "return [time.monotonic() for _ in range(3)]"),
    ("SW102", "return random.choice([1, 2])"),
    ("SW102", "return np.random.rand()"),
    ("SW102", "return secrets.token_hex()"),
    ("SW102", "return helper()"),
    ("SW103", "return uuid.uuid4()"),
    ("SW104", "nap(3)"),
    ("SW105", "return open('x')"),
    ("SW105", "return requests.get('x')"),
    ("SW105", "return Path('x').read_text()"),
    ("SW105", "subprocess.run(['x'])"),
    ("SW105", "return os.listdir('.')"),
    ("SW105", "return [p for p in glob.glob('*')]"),
    ("SW105", "import httpx\nreturn httpx.get('x')"),
    ("SW106", "threading.Thread(target=print).start()"),
    ("SW106", "return await asyncio.to_thread(print)"),
    ("SW106", "loop = asyncio.get_running_loop()\nawait loop.run_in_executor(None, print)"),
    ("SW106", "return ThreadPoolExecutor()"),
    ("SW107", "return os.environ['X']"),
    ("SW107", "return os.getenv('X')"),
    ("SW107", "return sys.argv"),
    ("SW108", "for each in {1, 2}:\n    await charge(each)"),
    ("SW108", "names = set(x)\nreturn [await charge(n) for n in names]"),
    ("SW108", "names: set[str] = set(x)\nreturn list(names | {'a'})"),
    ("SW108", "names = {'a'}\nreturn ','.join(names)"),
    ("SW108", "await asyncio.gather(*{charge(1), charge(2)})"),
    ("SW108", "names = {'a'}\nreturn names.pop()"),
    ("SW109", "global LIMIT\nLIMIT = 4"),
    ("SW109", "CACHE['x'] = 1"),
    ("SW109", "CACHE['x']['y'] = 1"),
    ("SW109", "SEEN.append('x')"),
    ("SW109", "del CACHE['x']"),
    ("SW110", "charge(1)"),
    ("SW110", "sleep('1h')"),
    ("SW110", "stepwell.sleep('1h')"),
    ("SW110", "plain.aio(1)"),
    ("SW111", "return plain(1)"),
    ("SW112", "return hash(x)"),
    ("SW113", f"total = 0\n{INNER}    nonlocal total\n    total += 1\n{RUN}"),
    ("SW113", f"seen = []\n{INNER}    seen.append(1)\n{RUN}"),
    ("SW113", f"{INNER}    x['a'] = 1\n{RUN}"),
    ("SW113", f"{INNER}    x.y.z = 1\n{RUN}"),
    ("SW113", f"{INNER}    del x['a']\n{RUN}"),
    ("SW113", "seen = []\nreturn await current.step('s', lambda: seen.append(1))"),
    ("SW113", "seen = []\n@step\nasync def inner():\n    seen.append(1)\nawait inner()"),
    ("SW113", "seen = []\nawait hook('ask', on_created=lambda token: seen.append(token))"),
]


@pytest.mark.parametrize(("code", "body"), BREAKING)
def test_what_differs_on_a_replay_is_found(code: str, body: str) -> None:
    assert found(body) == [code]


FINE = [
    "return await charge(1)",
    "return await asyncio.gather(charge(1), charge(2))",
    "await sleep('1h')\nawait asyncio.sleep(1)",
    "print('hello', LIMIT, CACHE.get('x'), SEEN)",
    "return d.fromisoformat('2030-01-01'), dt.timedelta(days=1)",
    "rng = random.Random(7)\nreturn rng.random()",
    "names = {'a'}\nreturn sorted(names), len(names), 'a' in names",
    "names = {'a': 1}\nreturn [n for n in names]",
    "done, late = await asyncio.wait(x)\nreturn [t.result() for t in done]",
    "try:\n    await charge(1)\nexcept (requests.RequestException, subprocess.SubprocessError):\n    pass",
    "try:\n    await charge(1)\nexcept OSError:\n    raise subprocess.CalledProcessError(1, 'x')",
    "CACHE = {}\nCACHE['x'] = 1\nreturn CACHE",
    "open = x\nreturn open(1)",
    "time = x\nreturn x.time()",
    "local = []\nlocal.append(1)\nx.y = 1",
    "task = asyncio.create_task(charge(1))\nreturn await task",
    "return await plain.aio(1)",
    "return await current.step('send', lambda: requests.get('x'), key='k')",
    "def tell(token):\n    requests.post(token)\nreturn await hook('ask', on_created=tell)",
    "return await hook('ask', on_created=lambda token: requests.post(token))",
    "@step(name='inner')\nasync def inner():\n    return time.time()\nreturn await inner()",
    f"seen = []\n{INNER}    return [*seen, x]\n{RUN}",
    f"seen = []\n{INNER}    seen = []\n    seen.append(1)\n    return seen\n{RUN}",
    "seen = []\nawait current.step('s', lambda seen: seen.append(1), seen)",
    "seen = []\ndef plainly():\n    nonlocal seen\n    seen.append(1)\nplainly()",
    f"{INNER}    n = 0\n    def deeper():\n        nonlocal n\n        n += 1\n    deeper()\n{RUN}",
]


@pytest.mark.parametrize("body", FINE)
def test_what_replays_alike_is_left_alone(body: str) -> None:
    assert found(body) == []


def test_a_def_workflow_calls_its_steps_plainly() -> None:
    head = "@workflow(name='other')\ndef flow(x=None):\n"
    assert found("plain(1)\ncharge(2)\nsleep('1h')", head=head) == []
    assert found("return time.time()", head=head) == ["SW101"]


def test_only_workflow_code_is_looked_at() -> None:
    assert found("return time.time()", head="async def flow(x=None):\n") == []


def test_a_helper_is_told_of_once_with_the_workflow_that_comes_to_it() -> None:
    text = HEAD + "@workflow\nasync def one(): helper()\n@workflow\nasync def two(): helper()\n"
    [only] = check_source(text, "app.py")
    assert (only.workflow, only.what) == ("one", "random.random()")
    assert HEAD.splitlines()[only.line - 1].startswith("def deeper")


def test_the_place_is_that_of_the_code() -> None:
    text = HEAD + "@workflow\nasync def flow():\n    x = [1,\n         time.time()]\n"
    [only] = check_source(text, "app.py")
    assert (only.path, only.line, only.column) == ("app.py", FIRST + 3, 10)
    assert "stepwell.now()" in only.advice


def test_functions_of_one_name_are_kept_apart() -> None:
    text = HEAD + (
        "def one():\n"
        "    def inner(): return 1\n"
        "    @workflow\n"
        "    async def flow(): return inner()\n"
        "def two():\n"
        "    def inner(): return time.time()\n"
    )
    assert check_source(text, "app.py") == []


@pytest.mark.parametrize(
    ("mark", "left"),
    [
        ("# stepwell: ignore[SW101]", []),
        ("# stepwell: ignore", []),
        ("# stepwell: ignore[SW102, SW101] - it is only shown", []),
        ("# stepwell: ignore[SW102]", ["SW101"]),
        ("# ignore", ["SW101"]),
    ],
)
def test_a_line_can_be_left_alone(mark: str, left: list[str]) -> None:
    assert found(f"return time.time()  {mark}") == left


def test_loops_of_calls_end() -> None:
    text = HEAD + "def a(): b()\ndef b(): a(); nap(1)\n@workflow\nasync def flow(): a()\n"
    assert [each.code for each in check_source(text, "app.py")] == ["SW104"]


@pytest.mark.parametrize("text", ["def (", "\0"])
def test_what_is_no_python_is_said(text: str) -> None:
    with pytest.raises(Unreadable, match=r"app\.py cannot be read"):
        check_source(text, "app.py")
