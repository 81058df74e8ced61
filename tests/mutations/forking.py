"""Conditions that hold forks together."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

_FORKS = "tests/integration/test_forks.py::"
_EVERYWHERE = "tests/simulation/test_forks_everywhere.py::test_a_fork_from_any_event_fits_its_code"
_TOGETHER = "tests/integration/test_together.py::"

MUTATIONS = (
    Mutation(
        id="fork-copies-before-it-begins",
        module="engine/readiness.py",
        was="if forking.is_behind(run.turn):",
        becomes="if False:",
        protects="a fork begins with what the other run has come to",
        killed_by=(f"{_FORKS}test_a_fork_of_an_ended_run_has_all_its_outcomes",),
    ),
    Mutation(
        id="fork-has-entries-before-it-begins",
        module="engine/inboxes.py",
        was="                await self._put_copied(header)\n",
        becomes="                pass\n",
        protects="an entry under an id that the other run has, too, is not accepted and lost",
        killed_by=(
            f"{_FORKS}test_an_entry_of_the_original_stands_in_a_fork_that_has_not_begun[another]",
        ),
    ),
    Mutation(
        id="fork-copy-goes-on",
        module="engine/forking.py",
        was="for event in events[turn.state.last :]]",
        becomes="for event in events]",
        protects="a copy that was cut short goes on where it stopped",
        killed_by=(
            f"{_FORKS}test_a_copy_that_is_cut_short_goes_on_where_it_stopped",
            f"{_FORKS}test_a_copy_of_several_commits_goes_on_where_it_stopped[after]",
        ),
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
        id="fork-starts-its-own-children",
        module="core/forking.py",
        was="    generation = state.lives.child_generation(child.id)\n",
        becomes="    return event\n",
        protects="children that went on are started anew, and those of the other run left alone",
        killed_by=(
            f"{_FORKS}test_children_that_had_ended_are_copied_and_others_start_anew",
            f"{_TOGETHER}test_a_fork_never_touches_a_child_of_the_other_run[abandon]",
        ),
    ),
    Mutation(
        id="fork-keeps-children-that-ended",
        module="core/forking.py",
        was="child is None or not child.open or child.order != number:",
        becomes="child is None or child.order != number:",
        protects="a child that had ended is the one that did",
        killed_by=(f"{_FORKS}test_children_that_had_ended_are_copied_and_others_start_anew",),
    ),
    Mutation(
        id="fork-sends-for-its-children",
        module="engine/readiness.py",
        was="Ready(replace(run.turn, settled=False), [*run.log, *copied])",
        becomes="Ready(run.turn, [*run.log, *copied])",
        protects="the turn that copies sends for what the copy says was begun",
        killed_by=(f"{_FORKS}test_children_that_had_ended_are_copied_and_others_start_anew",),
    ),
    Mutation(
        id="fork-has-its-inbox",
        module="engine/forking.py",
        was="    turn.inbox.update(await put_recorded(",
        becomes="    dict(await put_recorded(",
        protects="a fork that goes on as a new run in the turn that copies hands its inbox on",
        killed_by=(f"{_TOGETHER}test_a_fork_that_goes_on_at_once_hands_its_inbox_on",),
    ),
    Mutation(
        id="fork-is-refused-once",
        module="engine/readiness.py",
        was="    if turn.state.terminal:\n",
        becomes="    if turn.state.terminal and not forking.is_behind(turn):\n",
        protects="a fork that could not be copied has ended, as any run",
        killed_by=(f"{_TOGETHER}test_a_fork_that_was_refused_stays_so_and_can_be_deleted[wake]",),
    ),
    Mutation(
        id="fork-begins-maps-anew",
        module="core/forking.py",
        was="        if not known.told:\n            return False\n",
        becomes="",
        protects="a dispatched map that went on begins anew, with all of its items",
        killed_by=(f"{_EVERYWHERE}[map asks elsewhere]",),
    ),
    Mutation(
        id="fork-knows-items-as-steps",
        module="core/forking.py",
        was="            return _ended(state, event.step)\n",
        becomes="            return False\n",
        protects="code that was told of items one by one is told so again",
        killed_by=(f"{_EVERYWHERE}[map asks elsewhere]",),
    ),
    Mutation(
        id="fork-goes-without-cancel",
        module="core/forking.py",
        was="            return number\n",
        becomes="            pass\n",
        protects="a fork of a cancelled run does not begin with its cleanup",
        killed_by=(f"{_EVERYWHERE}[cancel]", f"{_EVERYWHERE}[cancelled parent]"),
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
