"""Streams over HTTP."""

from __future__ import annotations

import pytest
from pydantic import BaseModel

from stepwell import get_current_signal, set_result, stream_step, stream_workflow, terminate
from tests.integration.api.calls import Api


class Reading(BaseModel):
    celsius: float


@pytest.fixture
def streams(api: Api) -> Api:
    """With the stream `boiler`, published; its runs are not started."""

    @stream_workflow
    async def boiler() -> None: ...

    @stream_step(stream=boiler, signals={"measured": Reading, "broken": None})
    async def gauge() -> None:
        signal = await get_current_signal()
        if signal is None:
            return
        if signal.signal_type == "broken":
            raise RuntimeError("it leaks")
        await set_result(signal.payload["celsius"])
        if signal.payload["celsius"] > 90:
            await terminate()

    api.env.wait_for(api.client.publish([boiler.definition]))
    return api


SIGNALS = "/v1/streams/boiler/signals"
RUN = "stream_run_id=b/7"


def start(api: Api) -> None:
    answer = api.post("/v1/workflows/boiler/runs", {}, headers={"idempotency-key": "b/7"})
    assert answer.status == 202
    api.env.run_until_idle()


def test_signals_are_accepted_numbered_and_handled(streams: Api) -> None:
    early = [{"type": "measured", "payload": {"celsius": 20}}, {"type": "unknown"}]
    sent = streams.post(SIGNALS, {"signals": early}, query=RUN)
    assert sent.status == 202
    assert [each["sequence"] for each in sent.json["signals"]] == [None, None]
    streams.env.run_until_idle()
    alone = streams.get("/v1/streams/boiler", query=RUN).json
    assert (alone["status"], alone["last"], alone["subscriptions"]) == (None, 2, [])
    start(streams)
    shown = streams.get("/v1/streams/boiler", query=RUN).json
    assert shown["status"] == "running"
    [gauge] = shown["subscriptions"]
    assert (gauge["step"], gauge["status"], gauge["handled"]) == ("gauge", "waiting", 1)
    streams.post(
        SIGNALS, {"signals": [{"type": "measured", "payload": {"celsius": 95}}]}, query=RUN
    )
    streams.env.run_until_idle()
    run = streams.get(f"/v1/runs/{shown['run_id']}").json
    assert run["result"]["step_results"] == {"gauge": 95.0}
    late = streams.post(
        SIGNALS, {"signals": [{"type": "measured", "payload": {"celsius": 1}}]}, query=RUN
    )
    assert (late.status, late.code) == (409, "stream_ended")


def test_signals_are_read_by_range_type_and_source(streams: Api) -> None:
    many = [{"type": "a" if n % 2 else "b", "payload": {"n": n}} for n in range(1, 8)]
    streams.post(SIGNALS, {"signals": many}, query=RUN)
    streams.env.run_until_idle()
    page = streams.get(SIGNALS, query=f"{RUN}&after=1&limit=2").json
    assert [each["sequence"] for each in page["signals"]] == [2, 3]
    assert page["next"] == 3
    rest = streams.get(SIGNALS, query=f"{RUN}&after=3&before=7&type=b").json
    assert [each["payload"]["n"] for each in rest["signals"]] == [4, 6]
    assert rest["next"] is None
    assert streams.get(SIGNALS, query=f"{RUN}&source_run_id=nobody").json["signals"] == []
    assert streams.get(SIGNALS, query=f"{RUN}&after=x").code == "invalid_parameter"
    assert streams.get(SIGNALS).json["signals"] == [], "another stream run"


def test_a_payload_that_does_not_fit_is_refused_and_nothing_is_sent(streams: Api) -> None:
    good, bad = {"celsius": 1}, {"celsius": "hot"}
    body = {"signals": [{"type": "measured", "payload": each} for each in (good, bad)]}
    refused = streams.post(SIGNALS, body, query=RUN)
    assert (refused.status, refused.code) == (422, "signal_rejected")
    assert refused.json["errors"][0]["pointer"].endswith("celsius")
    streams.env.run_until_idle()
    assert streams.get(SIGNALS, query=RUN).json["signals"] == []


def test_the_same_key_is_the_same_signal(streams: Api) -> None:
    body = {"signals": [{"type": "x", "idempotency_key": "one", "metadata": {"by": "Ada"}}]}
    first, again = (
        streams.post(SIGNALS, body, query=RUN).json,
        streams.post(SIGNALS, body, query=RUN).json,
    )
    assert first["signals"][0]["signal_id"] == again["signals"][0]["signal_id"]
    streams.env.run_until_idle()
    streams.env.advance("10m")
    streams.post(SIGNALS, body, query=RUN)
    streams.env.run_until_idle()
    [signal] = streams.get(SIGNALS, query=RUN).json["signals"]
    assert (signal["sequence"], signal["metadata"]) == (1, {"by": "Ada"})


def test_a_parked_signal_is_shown_and_mended(streams: Api) -> None:
    start(streams)
    streams.post(SIGNALS, {"signals": [{"type": "broken"}]}, query=RUN)
    streams.env.run_until_idle()
    streams.env.advance("1h")
    parked = "/v1/streams/boiler/steps/gauge/parked"
    [one] = streams.get(parked, query=RUN).json["signals"]
    assert (one["sequence"], one["type"], one["attempts"]) == (1, "broken", 4)
    assert one["error"]["message"] == "it leaks"
    mend = f"{parked}/1"
    assert streams.post(mend, {"action": "mend"}, query=RUN).code == "invalid_body"
    assert streams.post(mend, {"action": "discard"}, query=RUN).status == 202
    streams.env.run_until_idle()
    assert streams.get(parked, query=RUN).json["signals"] == []
    assert streams.post(mend, {"action": "redrive"}, query=RUN).code == "signal_not_parked"
    nobody = "/v1/streams/boiler/steps/nobody/parked/1"
    assert streams.post(nobody, {"action": "redrive"}, query=RUN).code == "subscription_not_found"
    assert streams.get("/v1/streams/boiler/steps/gauge/parked").code == "subscription_not_found"


@pytest.mark.parametrize(
    ("query", "body", "code"),
    [
        (RUN, {"signals": [{"type": "no name"}]}, "invalid_parameter"),
        (RUN, {"signals": []}, "invalid_body"),
        (RUN, {"signals": [{"type": "a"}] * 101}, "invalid_body"),
        (RUN, {"signals": [{"payload": 1}]}, "invalid_body"),
        (RUN, [], "invalid_body"),
        ("other=1", {"signals": [{"type": "a"}]}, "invalid_parameter"),
        ("stream_run_id=", {"signals": [{"type": "a"}]}, "invalid_parameter"),
    ],
)
def test_bad_input_is_refused_by_name(streams: Api, query: str, body: object, code: str) -> None:
    assert streams.post(SIGNALS, body, query=query).code == code
    name = "/v1/streams/1name/signals"
    assert streams.post(name, {"signals": [{"type": "a"}]}).code == "invalid_parameter"
