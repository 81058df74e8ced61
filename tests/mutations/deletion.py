"""Conditions of deleting runs: whose rows go, and who is not deleted after all."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

_TESTS = "tests/contract/test_deletion.py::"
_ENGINE = "tests/integration/test_deletion.py::"
_AWS = "adapters/aws/store.py"
_LOCAL = "adapters/local/deletion.py"
_BLOBS = "adapters/local/blobs.py"

DELETION = (
    Mutation(
        id="aws-bury-only-the-end",
        module=_AWS,
        was="RunItem.last_event <= tombstone.last_event,",
        becomes="None,",
        protects="a run that was retried in the meantime is not deleted",
        killed_by=(f"{_TESTS}test_a_run_that_went_on_is_not_buried[aws]",),
    ),
    Mutation(
        id="aws-erase-keeps-the-tombstone",
        module=_AWS,
        was="_NOT_HEADER = RunItem.sk > HEADER",
        becomes="_NOT_HEADER = RunItem.sk >= HEADER",
        protects="who comes late finds that there was such a run",
        killed_by=(f"{_TESTS}test_nothing_is_left_but_the_tombstone[aws]",),
    ),
    Mutation(
        id="aws-empty-commits-stay",
        module=_AWS,
        was="self._table.write_many([emptied_commit(sk, run_id, until) for sk in commits], [])",
        becomes="self._table.write_many([], [(run_key(run_id), sk) for sk in commits])",
        protects="a turn that is late does not append to a run that was deleted",
        killed_by=(f"{_TESTS}test_whoever_is_late_loses[aws]",),
    ),
    Mutation(
        id="local-bury-only-the-end",
        module=_LOCAL,
        was="WHERE run_id = ? AND last_event <= ?",
        becomes="WHERE run_id = ? AND ? >= 0",
        protects="a run that was retried in the meantime is not deleted",
        killed_by=(f"{_TESTS}test_a_run_that_went_on_is_not_buried[memory]",),
    ),
    Mutation(
        id="local-forget-when-it-is-time",
        module=_LOCAL,
        was="WHERE kept_until <= ? AND",
        becomes="WHERE ? >= 0 AND",
        protects="a tombstone stays until no message of its run can be left",
        killed_by=(f"{_TESTS}test_nothing_is_left_but_the_tombstone[memory]",),
    ),
    Mutation(
        id="local-forget-only-what-was-deleted",
        module=_LOCAL,
        was=" AND status = '{DELETED}'",
        becomes="",
        protects="a run that has expired goes in order, not without a trace",
        killed_by=(f"{_TESTS}test_a_run_that_has_expired_is_not_forgotten[memory]",),
    ),
    Mutation(
        id="local-empty-only-its-commits",
        module=_LOCAL,
        was="events = '[]' WHERE run_id = ?",
        becomes="events = '[]' WHERE ? <> ''",
        protects="other runs keep their history",
        killed_by=(f"{_TESTS}test_other_runs_are_left_alone[memory]",),
    ),
    Mutation(
        id="local-erase-only-its-rows",
        module=_LOCAL,
        was='f"DELETE FROM {table} WHERE run_id = ?"',
        becomes="f\"DELETE FROM {table} WHERE ? <> ''\"",
        protects="other runs keep their rows",
        killed_by=(f"{_TESTS}test_other_runs_are_left_alone[memory]",),
    ),
    Mutation(
        id="local-forget-only-that-run",
        module=_LOCAL,
        was='"DELETE FROM commits WHERE run_id = ?", old',
        becomes="\"DELETE FROM commits WHERE ? <> ''\", old",
        protects="other runs keep their history",
        killed_by=(f"{_TESTS}test_what_is_forgotten_takes_nothing_with_it[memory]",),
    ),
    Mutation(
        id="local-forget-only-that-header",
        module=_LOCAL,
        was='"DELETE FROM runs WHERE run_id = ?", old',
        becomes="\"DELETE FROM runs WHERE ? <> ''\", old",
        protects="other runs stay",
        killed_by=(f"{_TESTS}test_what_is_forgotten_takes_nothing_with_it[memory]",),
    ),
    Mutation(
        id="local-values-from-the-owner-on",
        module=_BLOBS,
        was="sha256 > ? AND",
        becomes="? <> '' AND",
        protects="values of other runs stay",
        killed_by=(f"{_TESTS}test_the_values_of_one_owner_are_deleted[memory]",),
    ),
    Mutation(
        id="local-values-up-to-the-owner",
        module=_BLOBS,
        was="AND sha256 < ?",
        becomes="AND ? <> ''",
        protects="values of other runs stay",
        killed_by=(f"{_TESTS}test_the_values_of_one_owner_are_deleted[memory]",),
    ),
    Mutation(
        id="deletion-fenced-by-the-log",
        module="engine/deletion.py",
        was="message.after == state.last",
        becomes="message.after <= state.last",
        protects="a deletion is about one end of a run, and no other",
        killed_by=(f"{_ENGINE}test_a_deletion_that_is_about_another_end_is_no_more",),
    ),
    Mutation(
        id="deletion-goes-on",
        module="engine/readiness.py",
        was="    await deletion.erase(ports, header, rows.commits)\n",
        becomes="",
        protects="what a dying turn left of a deleted run goes",
        killed_by=(f"{_ENGINE}test_a_crash_at_any_write_leaves_it_to_be_deleted[before]",),
    ),
    Mutation(
        id="retention-as-decided",
        module="engine/settle.py",
        was="header.status.terminal and header.last_event == state.last:",
        becomes="False:",
        protects="until when a run is kept is decided at its end",
        killed_by=(f"{_ENGINE}test_what_was_decided_at_the_end_stays_so",),
    ),
)
