"""NO_COLOR and TERM=dumb, wherever something is coloured."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from kgw.terminals import has_colours, is_dumb
from tests import patience

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Each colours something: an error, a line of the log, and a bar is drawn.
ERROR = ("-m", "kgw", "topics", "list", "-b", "127.0.0.1:1")
LOG = ("-c", "from kgw.logs import *; configure(); EventLogger('kgw').error('lost', port=1)")
BAR = (
    "-c",
    "from kgw.cli.shared.output import progress_bar as bar\nwith bar(2, 'Read') as add: add(2)",
)


def seen(arguments: Sequence[str], variables: Mapping[str, str]) -> bytes:
    """Return what a terminal is given by a program of Python."""
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    ours, theirs = pty.openpty()
    try:
        subprocess.run(
            [sys.executable, *arguments],
            stdin=theirs, stdout=theirs, stderr=theirs, check=False,
            env={**environment, "TERM": "xterm", **variables}, timeout=patience.seconds(20),
        )  # fmt: skip
        os.close(theirs)
        told = b""
        try:
            while some := os.read(ours, 1 << 16):
                told += some
        except OSError:
            pass  # Linux's end of a terminal that nobody has open any more
        return told
    finally:
        os.close(ours)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, (True, False)),
        ({"TERM": "xterm"}, (True, False)),
        ({"NO_COLOR": ""}, (True, False)),
        ({"NO_COLOR": "0"}, (False, False)),
        ({"TERM": "dumb"}, (False, True)),
    ],
)
def test_what_a_terminal_can_show(
    variables: Mapping[str, str], expected: tuple[bool, bool]
) -> None:
    """NO_COLOR counts when it is not empty, whatever it is; a dumb terminal has no colours."""
    assert expected == (has_colours(variables), is_dumb(variables))


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [ERROR, LOG], ids=["error", "log"])
def test_colours_are_left_out_where_nobody_wants_them(arguments: Sequence[str]) -> None:
    """A terminal is given red for an error, and plain text with NO_COLOR or TERM=dumb."""
    red = [
        b"\x1b[31m" in seen(arguments, variables)
        for variables in ({}, {"NO_COLOR": "1"}, {"TERM": "dumb"})
    ]
    escapes = [b"\x1b" in seen(arguments, one) for one in ({"NO_COLOR": "1"}, {"TERM": "dumb"})]
    assert ([True, False, False], [False, False]) == (red, escapes)


@pytest.mark.slow
def test_a_bar_moves_the_cursor_and_is_not_drawn_where_that_cannot_be() -> None:
    """A bar without colours is the same bar; a dumb terminal has none."""
    bars = [seen(BAR, variables) for variables in ({}, {"NO_COLOR": "1"}, {"TERM": "dumb"})]
    assert (bars[0], b"") == (bars[1], bars[2])
    assert b"Read" in bars[0]
