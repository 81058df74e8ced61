"""Conditions of fan-out: how many run at a time, when a map ends, what is not waited for."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

_MAPS = "tests/integration/test_maps.py::"
_GOES_ON = "tests/integration/test_maps_that_go_on.py::"
_TICKETS = "tests/integration/test_tickets.py::"
_CRASHES = "tests/integration/test_map_crashes.py::"
_OUTLIVES = f"{_CRASHES}test_what_an_item_comes_to_after_its_run_was_deleted_is_deleted"
_LANES = "tests/unit/engine/test_lanes.py::"

_ROWS = "tests/contract/test_maps.py::"

ROWS = (
    *(
        Mutation(
            id=f"{adapter}-map-shard-put-if-absent",
            module=f"adapters/{adapter}/maps.py",
            was=was,
            becomes=becomes,
            protects="a turn that comes again does not wipe out what a shard has come to",
            killed_by=(f"{_ROWS}test_a_second_put_of_a_shard_returns_the_one_that_stands[{kind}]",),
        )
        for adapter, kind, was, becomes in (
            (
                "aws",
                "aws",
                "self._table.put(item, ShardItem.pk.does_not_exist())",
                "self._table.put(item)",
            ),
            (
                "local",
                "memory",
                "ON CONFLICT (run_id, map, map_order, shard) DO NOTHING",
                "ON CONFLICT (run_id, map, map_order, shard) DO UPDATE SET body = excluded.body",
            ),
        )
    ),
    Mutation(
        id="aws-map-finish-where-there-is-none",
        module="adapters/aws/maps.py",
        was="condition = ShardItem.pk.exists()",
        becomes="condition = ShardItem.touched != 0",
        protects="a shard whose run was deleted does not come back",
        killed_by=(f"{_ROWS}test_where_there_is_no_shard_nothing_is_noted[aws]",),
    ),
    Mutation(
        id="aws-map-lane-holds",
        module="adapters/aws/maps.py",
        was="            condition &= ShardItem.lanes[lane] == member\n",
        becomes="",
        protects="a lane that is told twice takes one member",
        killed_by=(f"{_ROWS}test_a_lane_takes_one_member_though_it_is_told_twice[aws]",),
    ),
    Mutation(
        id="local-map-lane-holds",
        module="adapters/local/maps.py",
        was="(lane is not None and row.lanes[lane] != member)",
        becomes="False",
        protects="a lane that is told twice takes one member",
        killed_by=(f"{_ROWS}test_a_lane_takes_one_member_though_it_is_told_twice[memory]",),
    ),
    Mutation(
        id="aws-map-count-where-there-is-none",
        module="adapters/aws/maps.py",
        was="SHARD_ROW, actions, ShardItem.pk.exists())",
        becomes="SHARD_ROW, actions, ShardItem.touched != 0)",
        protects="a map whose run was deleted does not come back",
        killed_by=(f"{_ROWS}test_where_there_is_no_shard_nothing_is_noted[aws]",),
    ),
    Mutation(
        id="aws-map-cancel-where-there-is-none",
        module="adapters/aws/maps.py",
        was="            ShardItem.pk.exists(),\n",
        becomes="            ShardItem.cancelled != False,\n",
        protects="a shard whose run was deleted does not come back",
        killed_by=(f"{_ROWS}test_where_there_is_no_shard_nothing_is_noted[aws]",),
    ),
    *(
        Mutation(
            id=f"aws-map-item-{n}",
            module="adapters/aws/maps.py",
            was=was,
            becomes=becomes,
            protects="the outcome of an item that came first stands",
            killed_by=(f"{_ROWS}{test}[aws]",),
        )
        for n, (was, becomes, test) in enumerate(
            (
                (
                    "MapItemItem.pk.does_not_exist() if first else before",
                    "None if first else before",
                    "test_the_first_outcome_of_an_item_stands",
                ),
                (
                    "before = MapItemItem.revision == row.revision - 1",
                    "before = MapItemItem.pk.exists()",
                    "test_an_outcome_follows_its_claim_once",
                ),
            ),
            1,
        )
    ),
    Mutation(
        id="aws-map-items-alone",
        module="adapters/aws/maps.py",
        was="map_key(key), MapItemItem.sk > items_after())",
        becomes="map_key(key))",
        protects="the row of a shard is not taken for one of its items",
        killed_by=(f"{_ROWS}test_all_items_of_a_shard_come_in_order[aws]",),
    ),
    Mutation(
        id="local-map-item-put-if-absent",
        module="adapters/local/maps.py",
        was="ON CONFLICT (run_id, map, map_order, shard, member) DO NOTHING",
        becomes="ON CONFLICT (run_id, map, map_order, shard, member) DO UPDATE SET "
        "body = excluded.body",
        protects="the outcome of an item that came first stands",
        killed_by=(f"{_ROWS}test_the_first_outcome_of_an_item_stands[memory]",),
    ),
    Mutation(
        id="local-map-item-revision",
        module="adapters/local/maps.py",
        was="AND member = ? AND revision = ?",
        becomes="AND member = ? AND revision <> -? - 1",
        protects="the outcome of an item that came first stands",
        killed_by=(f"{_ROWS}test_an_outcome_follows_its_claim_once[memory]",),
    ),
)

_AWAY = "tests/integration/test_dispatched_maps.py::"
_DEATHS = "tests/integration/test_map_crashes.py::"
_CRASH = "tests/simulation/test_crash_everywhere.py::test_a_crash_at_any_port_call_changes_nothing"

DISPATCHED = (
    Mutation(
        id="item-outcome-stands",
        module="engine/map_items.py",
        was='    if known is not None and known.status != "started":\n',
        becomes="    if False:\n",
        protects="an item that has its outcome is not made again for a message that comes again",
        killed_by=(f"{_DEATHS}test_an_item_that_has_its_outcome_is_not_made_again",),
    ),
    Mutation(
        id="item-begun-once",
        module="engine/map_items.py",
        was="            if standing is not claim:  # the attempt was begun, by whomever\n",
        becomes="            if False:\n",
        protects="a step that runs at most once is not begun twice",
        killed_by=(f"{_DEATHS}test_a_step_that_runs_at_most_once_is_not_begun_twice",),
    ),
    Mutation(
        id="item-of-a-shard-called-off",
        module="engine/map_items.py",
        was="    if shard is None or shard.cancelled:\n        return AttemptEnd.NOTHING\n",
        becomes="    if shard is None:\n        return AttemptEnd.NOTHING\n",
        protects="what nobody waits for is not made",
        killed_by=(f"{_DEATHS}test_an_item_of_a_shard_that_is_called_off_is_not_made",),
    ),
    Mutation(
        id="item-not-before-it-is-due",
        module="engine/map_items.py",
        was="    if item.due is not None and item.due > now:\n",
        becomes="    if False:\n",
        protects="an attempt does not begin before its delay is over",
        killed_by=(f"{_DEATHS}test_a_message_that_comes_too_early_is_put_off",),
    ),
    Mutation(
        id="item-that-is-done-goes-on",
        module="engine/map_items.py",
        was="        await after.go_on(shard, end_of(shard, item.index))\n",
        becomes="",
        protects="what a dead process left out after an outcome is done by who comes after it",
        killed_by=(
            f"{_CRASH}[map elsewhere]",
            f"{_DEATHS}test_a_crash_between_two_shards_leaves_nothing_out",
        ),
    ),
    Mutation(
        id="item-long-delay-is-handed-over",
        module="engine/map_items.py",
        was="            if delay <= LONGEST_DELAY and not",
        becomes="            if not",
        protects="a delay that no queue can keep is one of the run's timers",
        killed_by=(f"{_AWAY}test_a_long_delay_is_a_timer_of_the_run",),
    ),
    Mutation(
        id="map-sent-by-who-comes-after",
        module="engine/dispatched_maps.py",
        was="    return turn.header.last_event < known.order\n",
        becomes="    return False\n",
        protects="items whose messages a dead turn did not send are sent by the next one",
        killed_by=(
            f"{_DEATHS}test_the_rows_of_a_map_are_put_once_though_its_first_turn_dies",
            f"{_CRASH}[map elsewhere]",
        ),
    ),
    Mutation(
        id="map-unheard-of",
        module="engine/dispatched_maps.py",
        was="    return bool(touched) and max(touched) + UNHEARD <= turn.ports.clock.now()\n",
        becomes="    return bool(touched)\n",
        protects="a wake-up does not make items twice that are under way",
        killed_by=(f"{_DEATHS}test_a_wake_up_alone_sends_nothing_again",),
    ),
    Mutation(
        id="map-lost-for-good",
        module="engine/dispatched_maps.py",
        was="    return bool(touched) and max(touched) + UNHEARD <= turn.ports.clock.now()\n",
        becomes="    return False\n",
        protects="a map whose messages are gone does not wait for ever",
        killed_by=(f"{_DEATHS}test_messages_that_are_gone_are_sent_again_after_an_hour",),
    ),
    Mutation(
        id="map-left-items-are-called-off",
        module="engine/settle.py",
        was="    await dispatched_maps.call_off(turn, dispatched_maps.called_off(turn))\n",
        becomes="",
        protects="items that are not needed any more are not made",
        killed_by=(f"{_AWAY}test_a_map_that_is_not_waited_for_any_more_is_called_off",),
    ),
    Mutation(
        id="map-items-fit",
        module="engine/fan_out.py",
        was="        if known is not None and known.started.digest != wanted:\n",
        becomes="        if False:\n",
        protects="code that maps over other items does not go on",
        killed_by=(f"{_AWAY}test_other_items_block_a_run",),
    ),
    Mutation(
        id="map-answers-wait-for-the-item",
        module="core/decide.py",
        was=" and not state.is_item_elsewhere(row.step)",
        becomes="",
        protects="an answer that comes before the run knows of the item is not lost",
        killed_by=(f"{_AWAY}test_an_answer_that_comes_before_the_run_knows_of_the_item",),
    ),
    Mutation(
        id="map-hooks-of-items-stay-open",
        module="engine/settle.py",
        was='    return owner in pending or owner.partition("#")[0] in pending\n',
        becomes="    return owner in pending\n",
        protects="the hook of an item is not closed before the run knows of the item",
        killed_by=(
            f"{_DEATHS}test_the_hook_of_an_item_stays_open_until_the_run_knows_of_the_item",
        ),
    ),
    Mutation(
        id="map-item-too-late-goes",
        module="engine/map_items.py",
        was="            await self.clear(message_id)\n",
        becomes="",
        protects="what an item comes to after its run was deleted is deleted too",
        killed_by=(f"{_OUTLIVES}[False]",),
    ),
    Mutation(
        id="map-item-too-late-goes-after-a-death",
        module="engine/map_items.py",
        was="    if shard is None and again:\n",
        becomes="    if False:\n",
        protects="so does what an item came to whose process died then",
        killed_by=(f"{_OUTLIVES}[True]",),
    ),
    Mutation(
        id="map-item-too-late-wakes-its-run",
        module="engine/map_items.py",
        was="        await self._ports.queue.send(Wake(run_id=self._key.run_id, cause=message_id))\n",
        becomes="",
        protects="large values that were put too late go too",
        killed_by=(f"{_OUTLIVES}[False]",),
    ),
    Mutation(
        id="map-claim-of-a-deleted-run-goes",
        module="engine/map_items.py",
        was="    if work.gone:\n",
        becomes="    if False:\n",
        protects="a claim that comes after the deletion of its run is deleted",
        killed_by=(f"{_CRASHES}test_an_item_that_is_withdrawn_from_a_deleted_run_leaves_no_claim",),
    ),
)

MUTATIONS = (
    *ROWS,
    *DISPATCHED,
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
        was="        elif known is None:\n",
        becomes="        else:\n",
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
    *(
        Mutation(
            id=f"map-goes-on-{what}",
            module="engine/progress.py",
            was=was,
            becomes=becomes,
            protects="who looks on does not leave a run that goes on by itself",
            killed_by=(f"{_GOES_ON}test_a_map_goes_on_while_there_is_work_or_news[{case}]",),
        )
        for what, was, becomes, case in (
            ("with-work", "if top is None or not top.through:", "if False:", "two"),
            (
                "with-what-was-handed-over",
                "if sum(len(row.handed) for row in rows) > taken_over:",
                "if False:",
                "one that asks",
            ),
            ("with-its-end", "return verdict is not None", "return False", "one"),
        )
    ),
)
