"""`stepwell streams`."""

from __future__ import annotations

import json

from tests.integration.cli.shell import Shell


def test_signals_are_sent_shown_and_handled(shell: Shell) -> None:
    assert shell("run", "app:boiler", "--idempotency-key", "b7", "--wait", "0s").code == 6
    emit = ("streams", "emit", "boiler", "measured", '{"celsius": 20}', "--run", "b7")
    sent = shell(*emit, "--key", "one", "--metadata", '{"by": "Ada"}', "--json").json
    assert (sent["type"], sent["stream_run_id"], sent["sequence"]) == ("measured", "b7", None)
    assert "is sent to stream boiler, run b7" in shell(*emit).out
    assert shell("worker", "app", "--until-idle").code == 0
    shown = shell("streams", "show", "boiler", "--run", "b7", "--json").json
    assert (shown["status"], shown["last"]) == ("running", 2)
    [gauge] = shown["subscriptions"]
    assert (gauge["status"], gauge["cursor"], gauge["lag"]) == ("waiting", 2, 0)
    listed = shell("streams", "signals", "boiler", "--run", "b7", "--json").out.splitlines()
    assert [json.loads(line)["sequence"] for line in listed] == [1, 2]
    assert json.loads(listed[0])["metadata"] == {"by": "Ada"}
    assert "gauge" in shell("streams", "show", "boiler", "--run", "b7").out
    assert "20" in shell("streams", "signals", "boiler", "--run", "b7", "--after", "1").out
    refused = shell("streams", "emit", "boiler", "measured", '{"celsius": "hot"}', "--run", "b7")
    assert refused.code == 2
    assert "celsius" in refused.err
    assert shell(*emit[:4], '{"celsius": 95}', "--run", "b7").code == 0
    assert shell("worker", "app", "--until-idle").code == 0
    ended = shell(*emit)
    assert ended.code == 1
    assert "has ended" in ended.err


def test_a_parked_signal_is_redriven_or_discarded(shell: Shell) -> None:
    shell.started("app:boiler")
    for _ in range(2):
        assert shell("streams", "emit", "boiler", "broken").code == 0
    assert shell("worker", "app", "--until-idle").code == 0
    parked = shell("streams", "parked", "boiler", "gauge", "--json").json["signals"]
    assert [each["sequence"] for each in parked] == [1, 2]
    assert "it leaks" in shell("streams", "parked", "boiler", "gauge").out
    assert "handled again" in shell("streams", "redrive", "boiler", "gauge", "1").out
    done = shell("streams", "discard", "boiler", "gauge", "2", "--json").json
    assert done == {"sequence": 2, "action": "discard", "requested": True}
    assert shell("worker", "app", "--until-idle").code == 0
    left = shell("streams", "parked", "boiler", "gauge", "--json").json["signals"]
    assert [each["sequence"] for each in left] == [1]
    assert shell("streams", "discard", "boiler", "gauge", "2").code == 4
    assert shell("streams", "parked", "boiler", "nobody").code == 4


def test_a_signal_may_be_sent_later_and_taken_back(shell: Shell) -> None:
    shell.started("app:boiler")
    emit = ("streams", "emit", "boiler", "measured", '{"celsius": 1}', "--in")
    sent = shell(*emit, "1h", "--json").json
    taken = shell("streams", "unschedule", "boiler", sent["signal_id"], "--json").json
    assert taken == {"signal_id": sent["signal_id"], "requested": True}
    assert "in 1h" in shell(*emit, "1h").out
    assert shell(*emit, "soon").code == 2
    assert shell("streams", "show", "boiler", "--json").json["last"] == 0


def test_a_stream_that_nobody_has_started_keeps_its_signals(shell: Shell) -> None:
    assert shell("streams", "emit", "nowhere", "ping").code == 0
    assert shell("worker", "app", "--until-idle").code == 0
    shown = shell("streams", "show", "nowhere")
    assert "not started" in shown.out
    assert "nobody has subscribed" in shown.err
    assert shell("streams", "show", "nowhere", "--json").json["status"] is None
    assert shell("streams", "show", "no name").code == 2


def test_what_goes_along_with_a_signal_is_an_object(shell: Shell) -> None:
    for given in ("[1]", '"Ada"', "1"):
        refused = shell("streams", "emit", "boiler", "measured", "{}", "--metadata", given)
        assert refused.code == 2
        assert "--metadata takes an object" in refused.err
        assert "Traceback" not in refused.err
    assert "payload is not JSON" in shell("streams", "emit", "boiler", "measured", "hot").err
