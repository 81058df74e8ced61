"""The laws hold for random programs under random fates."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from stepwell.authoring.registry import registry
from stepwell.testing import Environment
from stepwell.testing.laws import check_run
from tests.unit.engine.programs import NESTING, PLAIN, Program, one_move, program

programs = st.recursive(
    st.tuples(st.sampled_from(PLAIN), st.integers(0, 5), st.just([])),
    lambda inside: st.tuples(
        st.sampled_from(NESTING), st.integers(0, 5), st.lists(inside, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(programs, st.integers(0, 2**32))
def test_every_history_of_every_program_obeys_the_laws(what: Program, seed: int) -> None:
    choose = random.Random(seed)
    with registry.isolated(), Environment(seed=seed) as env:
        registry.add_workflow(program.definition)
        handle = env.start(program, what)
        env.run_until_idle()
        check_run(env, handle)
        for _ in range(40):
            if env.get(handle).status.terminal:
                break
            one_move(env, handle, choose)
            check_run(env, handle)
        assert env.get(handle).status.terminal or env.hooks(handle)
