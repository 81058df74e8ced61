"""Take one condition away, and the tests that are named for it miss it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mutations.conditions import BY_ID, MUTATIONS
from tests.mutations.mutation import Drifted, Mutation
from tests.mutations.plugin import MUTATION, REPORT
from tests.mutations.warm import Ended, Wanted, Warm

#: After how long a run counts as one that hangs. None comes near to it.
_SECONDS = 60.0
#: One test of each file, without a mutation.
_SECONDS_FOR_ALL = 200.0


@pytest.fixture(scope="session")
def bytecode(tmp_path_factory: pytest.TempPathFactory) -> Path | None:
    """Where bytecode is not kept, all processes keep theirs in one folder."""
    shared = tmp_path_factory.getbasetemp()
    if shared.name.startswith("popen-"):  # of a process of pytest-xdist
        shared = shared.parent
    return shared / "bytecode" if sys.dont_write_bytecode else None


@pytest.fixture(scope="session")
def warm(bytecode: Path | None) -> Iterator[Warm]:
    """A process that has imported nothing of the package."""
    process = Warm(bytecode)
    yield process
    process.close()


@pytest.fixture(scope="session")
def warmer(bytecode: Path | None) -> Iterator[Warm]:
    """A process that has imported all that no adapter can reach: for mutations of adapters."""
    process = Warm(bytecode, "stepwell.client", "stepwell.engine.sweep")
    yield process
    process.close()


def test_without_a_mutation_they_pass(warm: Warm, tmp_path: Path) -> None:
    """One test of each file: that all of them pass is seen where they stand."""
    tests = {test.partition("::")[0]: test for each in MUTATIONS for test in each.killed_by}
    ended, report = _run(warm, tmp_path, None, sorted(tests.values()), _SECONDS_FOR_ALL)
    assert ended.code == 0, ended.output
    assert report == {"failed": [], "loaded": []}


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.id)
def test_a_condition_that_is_taken_away_is_missed(
    request: pytest.FixtureRequest, tmp_path: Path, mutation: Mutation
) -> None:
    of_adapter = mutation.module.startswith("adapters/")
    warm: Warm = request.getfixturevalue("warmer" if of_adapter else "warm")
    source = mutation.path.read_text(encoding="utf-8")
    compile(mutation.apply(source), mutation.module, "exec")
    ended, report = _run(warm, tmp_path, mutation, list(mutation.killed_by), _SECONDS)
    if ended.code is None:
        assert mutation.hangs, f"the tests hang\n{ended.output}"
        return
    assert ended.code == 1, f"no test failed: pytest ended with {ended.code}\n{ended.output}"
    assert report["loaded"] == [mutation.id]
    for test in mutation.killed_by:
        failed = any(_is_of(each, test) for each in report["failed"])
        assert failed, f"{test} does not miss it\n{ended.output}"


def test_every_entry_has_an_id_of_its_own_and_says_what_it_protects() -> None:
    assert len(BY_ID) == len(MUTATIONS)
    assert all(len(mutation.protects) > 1 and mutation.killed_by for mutation in MUTATIONS)


@pytest.mark.parametrize(
    ("was", "within", "told"),
    [
        ("condition |= ", None, "stands 0 times"),
        ("self._table.put(item", None, "times in adapters/aws/store.py"),
        ("return found", "DynamoStore.gone", "0 functions"),
    ],
)
def test_an_entry_whose_text_has_drifted_says_so(was: str, within: str | None, told: str) -> None:
    mutation = Mutation(
        id="drifted",
        module="adapters/aws/store.py",
        was=was,
        becomes="",
        protects="nothing",
        killed_by=(),
        within=within,
    )
    with pytest.raises(Drifted, match=told):
        mutation.apply(mutation.path.read_text(encoding="utf-8"))


def _run(
    warm: Warm, folder: Path, mutation: Mutation | None, tests: list[str], seconds: float
) -> tuple[Ended, dict[str, list[str]]]:
    report = folder / "report"
    environment = {REPORT: str(report), MUTATION: "" if mutation is None else mutation.id}
    ended = warm.run(
        Wanted(tests=tests, environment=environment, folder=str(folder), seconds=seconds)
    )
    told = json.loads(report.read_text(encoding="utf-8")) if report.exists() else {}
    return ended, told


def _is_of(failed: str, test: str) -> bool:
    """Whether a test that failed is this one, or one of its parametrised ones."""
    return failed == test or failed.startswith((f"{test}[", f"{test}::"))
