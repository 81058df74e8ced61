"""Conditions that hold forks together."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

_FORKS = "tests/integration/test_forks.py::"

MUTATIONS = (
    Mutation(
        id="fork-copies-before-it-begins",
        module="engine/turn.py",
        was="if forking.is_behind(turn):",
        becomes="if False:",
        protects="a fork begins with what the other run has come to",
        killed_by=(f"{_FORKS}test_a_fork_of_an_ended_run_has_all_its_outcomes",),
    ),
    Mutation(
        id="fork-copy-goes-on",
        module="engine/forking.py",
        was="for event in events[turn.state.last :]]",
        becomes="for event in events]",
        protects="a copy that was cut short goes on where it stopped",
        killed_by=(f"{_FORKS}test_a_copy_that_is_cut_short_goes_on_where_it_stopped",),
    ),
    Mutation(
        id="fork-owns-its-values",
        module="engine/forking.py",
        was="changes[field.name] = await turn.values.own(value)",
        becomes="changes[field.name] = value",
        protects="a fork stays readable when the other run is deleted",
        killed_by=(f"{_FORKS}test_large_values_stay_readable_when_the_original_is_gone",),
    ),
    Mutation(
        id="fork-leaves-out-what-is-open",
        module="core/forking.py",
        was="if isinstance(event, _NOT_COPIED):",
        becomes="if False:",
        protects="open hooks begin anew, with tokens of their own",
        killed_by=(f"{_FORKS}test_open_hooks_begin_anew_with_tokens_of_their_own",),
    ),
    Mutation(
        id="fork-keeps-children-that-ended",
        module="core/forking.py",
        was="return not state.children[event.child].open",
        becomes="return True",
        protects="children that went on are started anew",
        killed_by=(f"{_FORKS}test_children_that_had_ended_are_copied_and_others_start_anew",),
    ),
    Mutation(
        id="fork-of-one-key",
        module="engine/forks.py",
        was="if known.input_digest != made:",
        becomes="if False:",
        protects="one id or key is one fork",
        killed_by=(f"{_FORKS}test_one_id_or_key_is_one_fork",),
    ),
)
