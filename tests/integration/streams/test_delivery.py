"""Which signals a stream step is called for, in which order, and how often."""

from __future__ import annotations

from typing import Any

import pytest

from stepwell import (
    StreamStep,
    get_current_signal,
    hook,
    stream_step,
    stream_workflow,
    suspend,
    terminate,
)
from stepwell.errors import StreamEnded
from stepwell.testing import Environment
from tests.integration.streams.given import (
    begin,
    events,
    post,
    send,
    standing,
    subscription,
    types,
)

Seen = list[Any]


def keeper(
    stream: str, name: str, kinds: list[str], seen: Seen, last: str = "over"
) -> StreamStep[Any]:
    """A stream step that notes which signals it was called for."""

    @stream_step(stream=stream, signals=[*kinds, last], name=name)
    async def keep() -> None:
        signal = await get_current_signal()
        seen.append(None if signal is None else (signal.sequence, signal.signal_type))
        if signal is not None and signal.signal_type == last:
            await terminate()

    return keep


@pytest.fixture
def stream(stepwell_env: Environment) -> Any:
    """A stream without a step so far."""

    @stream_workflow
    async def parcels() -> None: ...

    return parcels


def test_the_start_comes_once_and_without_a_signal(stepwell_env: Environment, stream: Any) -> None:
    seen: Seen = []
    keeper("parcels", "scan", ["came"], seen)
    begin(stepwell_env, stream)
    assert seen == [None]
    send(stepwell_env, "parcels", "came")
    assert seen == [None, (1, "came")]


def test_nobody_subscribed_is_no_error_and_shows(stepwell_env: Environment) -> None:
    signal = send(stepwell_env, "nowhere", "came")
    assert signal.signal_id
    found = standing(stepwell_env, "nowhere")
    assert (found.status, found.last, found.subscriptions) == (None, 1, ())
    [kept] = stepwell_env.wait_for(stepwell_env.client.signals("nowhere"))
    assert (kept.sequence, kept.signal_id) == (1, signal.signal_id)


def test_a_type_that_nobody_takes_is_kept_and_wakes_nobody(
    stepwell_env: Environment, stream: Any
) -> None:
    seen: Seen = []
    keeper("parcels", "scan", ["came"], seen)
    begin(stepwell_env, stream)
    turns = len(stepwell_env.turns)
    send(stepwell_env, "parcels", "weighed")
    assert seen == [None]
    assert len(stepwell_env.turns) == turns
    assert standing(stepwell_env, "parcels").last == 1
    # It is passed over, not lost from the count.
    send(stepwell_env, "parcels", "came")
    assert seen == [None, (2, "came")]
    assert subscription(stepwell_env, "parcels", "scan").lag == 0


def test_signals_that_come_during_a_call_wait_and_come_in_order(
    stepwell_env: Environment, stream: Any
) -> None:
    seen: Seen = []

    @stream_step(stream=stream, signals=["came"])
    async def slow() -> None:
        signal = await get_current_signal()
        if signal is None:
            return
        seen.append(("begun", signal.sequence))
        if signal.sequence == 1:
            await hook("wait")
        seen.append(("ended", signal.sequence))

    begin(stepwell_env, stream)
    for _ in range(3):
        send(stepwell_env, "parcels", "came")
    assert subscription(stepwell_env, "parcels", "slow").status == "running"
    assert {number for _, number in seen} == {1}
    [question] = stepwell_env.hooks()
    stepwell_env.resume_hook(question.token, {})
    ends = [number for what, number in seen if what == "ended"]
    assert ends == [1, 2, 3]
    assert subscription(stepwell_env, "parcels", "slow").status == "waiting"


def test_what_waits_is_not_delivered_to_a_step_that_has_ended(
    stepwell_env: Environment, stream: Any
) -> None:
    seen: Seen = []
    keeper("parcels", "scan", ["came"], seen)
    keeper("parcels", "weigh", ["came"], [], last="never")
    begin(stepwell_env, stream)
    for kind in ("came", "over", "came"):
        post(stepwell_env, "parcels", kind)
    stepwell_env.run_until_idle()
    assert seen == [None, (1, "came"), (2, "over")]
    assert subscription(stepwell_env, "parcels", "scan").status == "terminated"


def test_each_step_is_called_once_for_a_signal_whatever_the_others_do(
    stepwell_env: Environment, stream: Any
) -> None:
    fast: Seen = []
    keeper("parcels", "fast", ["came"], fast)
    calls: Seen = []

    @stream_step(stream=stream, signals=["came"])
    async def slow() -> None:
        signal = await get_current_signal()
        if signal is not None:
            await hook(f"h{signal.sequence}")
            calls.append(signal.sequence)

    begin(stepwell_env, stream)
    for _ in range(10):
        post(stepwell_env, "parcels", "came")
    stepwell_env.run_until_idle()
    while questions := stepwell_env.hooks():
        stepwell_env.resume_hook(questions[0].token, {})
    assert fast == [None, *((number, "came") for number in range(1, 11))]
    assert calls == list(range(1, 11))


def test_signals_that_come_before_the_start_wait_for_it(
    stepwell_env: Environment, stream: Any
) -> None:
    seen: Seen = []
    keeper("parcels", "scan", ["came"], seen)
    body: list[str] = []

    @stream_workflow
    async def letters() -> None:
        body.append("run")

    keeper("letters", "scan", ["came"], seen)
    send(stepwell_env, "letters", "came")
    send(stepwell_env, "letters", "came")
    assert seen == []
    begin(stepwell_env, letters)
    assert seen == [None, (1, "came"), (2, "came")]
    assert body == ["run"]


def test_names_that_contain_each_other_are_different_steps(
    stepwell_env: Environment, stream: Any
) -> None:
    work: Seen = []
    more: Seen = []
    keeper("parcels", "work", ["small"], work)
    keeper("parcels", "work_extra", ["large"], more)
    begin(stepwell_env, stream)
    send(stepwell_env, "parcels", "large")
    assert (work, more) == ([None], [None, (1, "large")])


def test_a_stream_run_gets_its_own_signals_only(stepwell_env: Environment, stream: Any) -> None:
    seen: Seen = []

    @stream_step(stream=stream, signals=["came"])
    async def scan() -> None:
        signal = await get_current_signal()
        if signal is not None:
            seen.append((signal.stream_run_id, signal.sequence))

    begin(stepwell_env, stream, run="a")
    begin(stepwell_env, stream, run="b")
    send(stepwell_env, "parcels", "came", stream_run_id="a")
    send(stepwell_env, "parcels", "came", stream_run_id="b")
    send(stepwell_env, "parcels", "came")
    assert seen == [("a", 1), ("b", 1)]
    assert standing(stepwell_env, "parcels").status is None


def test_numbers_have_no_gaps_and_no_repeats_when_many_emit_at_once(
    stepwell_env: Environment, stream: Any
) -> None:
    seen: Seen = []
    keeper("parcels", "scan", ["came"], seen)
    begin(stepwell_env, stream)
    for _ in range(37):
        post(stepwell_env, "parcels", "came")
    stepwell_env.run_until_idle()
    kept = stepwell_env.wait_for(stepwell_env.client.signals("parcels"))
    assert [signal.sequence for signal in kept] == list(range(1, 38))
    assert seen == [None, *((number, "came") for number in range(1, 38))]


def test_one_key_is_one_signal(stepwell_env: Environment, stream: Any) -> None:
    seen: Seen = []
    keeper("parcels", "scan", ["came"], seen)
    begin(stepwell_env, stream)
    first = send(stepwell_env, "parcels", "came", idempotency_key="k")
    stepwell_env.advance("1h")
    again = send(stepwell_env, "parcels", "came", idempotency_key="k")
    assert again.signal_id == first.signal_id
    assert seen == [None, (1, "came")]
    other = send(stepwell_env, "parcels", "came", idempotency_key="k", stream_run_id="other")
    assert other.signal_id != first.signal_id


def test_a_second_call_never_overlaps_the_first(stepwell_env: Environment, stream: Any) -> None:
    calls: Seen = []

    @stream_step(stream=stream, signals=["came"])
    async def slow() -> None:
        signal = await get_current_signal()
        if signal is not None:
            calls.append(("in", signal.sequence))
            await hook("go")
            calls.append(("out", signal.sequence))

    begin(stepwell_env, stream)
    for _ in range(3):
        send(stepwell_env, "parcels", "came")
    while questions := stepwell_env.hooks():
        assert len(questions) == 1
        stepwell_env.resume_hook(questions[0].token, {})
    shape = [number for _, number in calls]
    assert shape == sorted(shape)


def test_a_stream_run_that_has_ended_refuses_signals_from_outside(
    stepwell_env: Environment, stream: Any
) -> None:
    seen: Seen = []
    keeper("parcels", "scan", ["came"], seen)
    run = begin(stepwell_env, stream)
    send(stepwell_env, "parcels", "over")
    assert stepwell_env.result(run).step_states == {"scan": "terminated"}
    with pytest.raises(StreamEnded):
        post(stepwell_env, "parcels", "came")
    assert standing(stepwell_env, "parcels").last == 1


def test_signals_are_listed_by_range_type_and_source(
    stepwell_env: Environment, stream: Any
) -> None:
    for number in range(1, 8):
        post(stepwell_env, "parcels", "odd" if number % 2 else "even", {"n": number})
    stepwell_env.run_until_idle()

    def numbers(**options: Any) -> list[Any]:
        found = stepwell_env.wait_for(stepwell_env.client.signals("parcels", **options))
        return [signal.sequence for signal in found]

    assert numbers(after=2, before=6) == [3, 4, 5]
    assert numbers(types=["odd"]) == [1, 3, 5, 7]
    assert numbers(types=["even"], limit=2) == [2, 4]
    assert numbers(source_run_id="nobody") == []
    with pytest.raises(ValueError, match="limit"):
        numbers(limit=0)


def test_each_signal_is_one_event_with_all_that_it_came_to(
    stepwell_env: Environment, stream: Any
) -> None:
    @stream_step(stream=stream, signals=["came"])
    async def scan() -> None:
        if await get_current_signal() is not None:
            await suspend("look", ["came"])

    begin(stepwell_env, stream)
    send(stepwell_env, "parcels", "came")
    run_id = subscription(stepwell_env, "parcels", "scan").run_id
    assert types(stepwell_env, run_id) == [
        "RunStarted",
        "SignalTaken",
        "SignalHandled",
        "SignalTaken",
        "SignalHandled",
    ]
    last = events(stepwell_env, run_id, "SignalHandled")[-1]
    assert (last.status, last.reason, last.resume) == ("suspended", "look", ("came",))
