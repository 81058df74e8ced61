"""All mutations."""

from __future__ import annotations

from tests.mutations import (
    aws_messaging,
    aws_store,
    control,
    deletion,
    engine_outside,
    engine_turns,
    families,
    fan_out,
    forking,
    inputs,
    local_queue,
    local_store,
    overtaken,
    remarks,
    steps,
    streams,
    subscriptions,
    sweeping,
)

MUTATIONS = (
    *engine_turns.MUTATIONS,
    *engine_outside.MUTATIONS,
    *fan_out.MUTATIONS,
    *families.MUTATIONS,
    *inputs.MUTATIONS,
    *control.MUTATIONS,
    *forking.MUTATIONS,
    *aws_store.MUTATIONS,
    *aws_messaging.MUTATIONS,
    *local_store.MUTATIONS,
    *local_queue.MUTATIONS,
    *deletion.DELETION,
    *overtaken.MUTATIONS,
    *remarks.REMARKS,
    *steps.STEPS,
    *streams.MUTATIONS,
    *subscriptions.SUBSCRIPTIONS,
    *sweeping.MUTATIONS,
)
BY_ID = {mutation.id: mutation for mutation in MUTATIONS}
