"""How data is shown."""

from __future__ import annotations

import pytest

from stepwell.cli.render import Output, lines, one_line


def test_what_has_more_lines_goes_on_below_its_first(capsys: pytest.CaptureFixture[str]) -> None:
    Output(as_json=False).facts({"id": "7", "blocked": lines("one\n- two\x1b[31m\n\tthree")})
    assert capsys.readouterr().out.splitlines() == [
        "id       7",
        "blocked  one",
        "         - two [31m",
        "          three",
    ]


def test_one_line_stays_one() -> None:
    assert one_line("a\n  b\x00c") == "a b c"
