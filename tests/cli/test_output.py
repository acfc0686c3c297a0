from __future__ import annotations

import json
from typing import TYPE_CHECKING

from kgw.cli.shared import output
from kgw.types import printable

if TYPE_CHECKING:
    import pytest


def test_tables_are_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    """Columns are as wide as their content, numbers stand to the right, nothing trails."""
    rows = [{"name": "a", "count": 1}, {"name": "longer", "count": 200, "other": None}]
    output.print_rows(rows, "name how_many=count other", count=abs)
    expected = "NAME    HOW MANY  OTHER\na              1  -\nlonger       200  -\n"
    assert expected == capsys.readouterr().out


def test_control_characters_do_not_reach_the_terminal() -> None:
    """What others have named a topic cannot move the cursor or ring the bell."""
    assert "\\x1b[31mred\\x07" == printable("\x1b[31mred\x07")
    assert "größer" == printable("größer")


def test_nor_do_they_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    """JSON itself has no escapes for characters above U+001F; a program reads the same names."""
    names = [
        "größer",
        "\x9b2J",
        "a\x7f",
        "\u202eevil",
        "\u2028",
        "\U000e0041",
        "\U0001f4a3",
        "\x1b",
    ]
    for show in (output.print_json, output.print_json_line):
        show({"names": names})
        shown = capsys.readouterr().out
        assert shown.replace("\n", "").isprintable()
        assert {"names": names} == json.loads(shown)
        assert "größer" in shown
        assert "\\u009b2J" in shown


def test_a_bar_is_shown_to_people_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a terminal nothing is shown; with one, how far the work is."""
    with output.progress_bar(10, "Read") as advance:
        advance(10)
    assert "" == capsys.readouterr().err
    monkeypatch.setattr(output, "is_terminal", lambda: True)
    with output.progress_bar(0, "Read") as advance:
        advance(10)
    assert "" == capsys.readouterr().err
    with output.progress_bar(10, "Read") as advance:
        advance(10)
    assert "Read" in capsys.readouterr().err
