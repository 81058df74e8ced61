"""Conditions of fan-out: how many run at a time, when a map ends, what is not waited for."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

_MAPS = "tests/integration/test_maps.py::"
_TICKETS = "tests/integration/test_tickets.py::"
_LANES = "tests/unit/engine/test_lanes.py::"

MUTATIONS = (
    Mutation(
        id="map-lanes",
        module="engine/lanes.py",
        was="        if len(running) >= limit:\n",
        becomes="        if False:\n",
        protects="so many items of a map run at a time, and no more",
        killed_by=(
            f"{_MAPS}test_so_many_run_at_a_time",
            f"{_LANES}test_items_wait_for_a_lane_in_order",
        ),
    ),
    Mutation(
        id="map-lane-is-given-up",
        module="engine/perform.py",
        was="            self._leave_lane(command)\n        event = outcome_event(entry",
        becomes="            pass\n        event = outcome_event(entry",
        protects="an item that waits for a hook lets another one begin",
        killed_by=(f"{_MAPS}test_one_that_waits_for_a_hook_lets_another_begin",),
    ),
    Mutation(
        id="map-started-once",
        module="engine/perform.py",
        was="        if command.id not in self._turn.state.maps:\n",
        becomes="        if True:\n",
        protects="a map that goes on in a later turn is not started again",
        killed_by=(f"{_MAPS}test_one_that_waits_for_a_hook_lets_another_begin",),
    ),
    Mutation(
        id="map-total",
        module="engine/fan_out.py",
        was="        if known is not None and known.total != command.total:\n",
        becomes="        if False:\n",
        protects="code that maps over another number of items does not go on",
        killed_by=(f"{_MAPS}test_a_map_with_another_number_of_items_blocks_a_run",),
    ),
    Mutation(
        id="map-losers-are-withdrawn",
        module="engine/fan_out.py",
        was="                    self._drop(each)\n",
        becomes="                    pass\n",
        protects="items that are not needed any more are cancelled",
        killed_by=(f"{_MAPS}test_a_map_that_is_over_while_the_run_goes_on_has_ended",),
    ),
    Mutation(
        id="map-end-is-recorded",
        module="engine/settle.py",
        was='        if each.status == "started" and each.id not in pending:\n',
        becomes="        if False:\n",
        protects="a run does not show that it waits for a map that is over",
        killed_by=(f"{_MAPS}test_a_map_that_is_over_while_the_run_goes_on_has_ended",),
    ),
    Mutation(
        id="ticket-outlives-its-waiter",
        module="engine/fan_out.py",
        was="            await waiter\n",
        becomes="            await self._future\n",
        protects="who stops waiting for a ticket does not stop its step",
        killed_by=(f"{_TICKETS}test_who_stops_waiting_does_not_stop_the_step",),
    ),
    Mutation(
        id="ticket-cancel-withdraws",
        module="engine/fan_out.py",
        was="            self._drop()\n",
        becomes="            pass\n",
        protects="the step of a ticket that was cancelled goes on no more",
        killed_by=(f"{_TICKETS}test_a_cancelled_ticket_cancels_its_step",),
    ),
)
