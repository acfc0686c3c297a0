"""The screen of `kgw top`: transcripts of what a person sees, and keys."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from kgw.cli.top.figures import Watch
from kgw.cli.top.screen import (
    ALARM,
    BOLD,
    HEADING,
    HELP,
    PANES,
    Screen,
    lines_of,
    press,
    show_bytes,
    show_number,
    snapshot_of,
)
from tests.cli.test_top_figures import errors, group, partition, requests, sample_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kgw.cli.top.figures import Figures
    from kgw.cli.top.screen import Line

SCREEN = Screen("127.0.0.1:9644")


def figures_of(problems: int = 0) -> Figures:
    """Figures of a busy server, ten seconds after the sample before."""
    watch = Watch()
    names = ["orders", "payments", "a topic whose name is longer than there is room for"]
    for at_s, times in ((0.0, 0), (10.0, 1)):
        sample = sample_at(
            at_s,
            metrics={
                "kgw_requests_total": requests(
                    FETCH=50_000 * times, PRODUCE=123 * times, METADATA=7
                ),
                "kgw_answer_errors_total": errors("FETCH", NOT_LEADER=20 * times),
                "kgw_received_bytes_total": 30_000_000 * times,
                "kgw_connections_open": 12,
                "kgw_loop_lag_max_seconds": 0.0081,
            },
            server={
                "problems": [f"problem {number}" for number in range(problems)],
                "problem_count": problems,
                "ready": not problems,
            },
            partitions=[
                partition(name, 0, 10_000 * times * (number + 1))
                for number, name in enumerate(names)
            ],
            groups=[
                group("readers", 50 * times, 1_234_567),
                group("idle", 0, 0),
                group("\x1b[31mred", 0, None),
            ],
        )
        figures = watch.take(sample)
    return figures


def text(lines: list[Line]) -> str:
    """The lines as they stand."""
    return "\n".join(one.text for one in lines)


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The clock in the first line is local time."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


OVERVIEW = """\
kgw 1.2.3 at 127.0.0.1:9644  node 0  up 25 h  leading, ready  22:13:20  every 2 s
connections 12  memory 40.0 MB  of requests 0 B  processor 10 %
loop lag p99 <= 0 ms (max 8.1 ms)
requests 5.01k/s  errors 2/s  in 2.86 MB/s  out 0 B/s  appended 6.00k records/s  lag 1.23M

API                                           vrequests/s     errors/s     requests       errors
FETCH                                               5.00k            2        50.0k           20
PRODUCE                                              12.3            0          123            0
METADATA                                                0            0            7            0

TOPIC                             vrecords/s      bytes/s      records         size   partitions
a topic whose name is longer t~        3.00k      29.3 KB        30.0k       293 KB            1
payments                               2.00k      19.5 KB        20.0k       195 KB            1
orders                                 1.00k      9.77 KB        10.0k      97.7 KB            1

GROUP                                   vlag       behind       read/s        lag/s   partitions
readers                                1.23M        1.5 s            5            0            1
idle                                       0        1.5 s            0            0            1
\\x1b[31mred                                ?        1.5 s            0            ?            1"""

SMALL = """\
kgw 1.2.3 at 127.0.0.1:9644  node 0  up 25 h  leading, ready
22:13:20  every 2 s
connections 12  memory 40.0 MB  of requests 0 B
processor 10 %  loop lag p99 <= 0 ms (max 8.1 ms)
requests 5.01k/s  errors 2/s  in 2.86 MB/s  out 0 B/s
appended 6.00k records/s  lag 1.23M

API                    vrequests/s     errors/s     requests

TOPIC                   vrecords/s      bytes/s      records
a topic whose name i~        3.00k      29.3 KB        30.0k

GROUP                         vlag       behind       read/s
readers                      1.23M        1.5 s            5"""


@pytest.mark.parametrize(
    ("width", "height", "expected"), [(96, 24, OVERVIEW), (60, 14, SMALL)], ids=["wide", "small"]
)
def test_the_overview(width: int, height: int, expected: str) -> None:
    """The head, and as many rows of each table as fit; what no terminal may obey is escaped."""
    assert expected == text(lines_of(SCREEN, figures_of(), width, height))


@pytest.mark.parametrize("pane", PANES)
@pytest.mark.parametrize(("width", "height"), [(1, 1), (10, 3), (40, 0), (200, 60)])
def test_nothing_is_larger_than_the_screen(pane: str, width: int, height: int) -> None:
    """However small it is, with every pane and with the help."""
    for screen in (SCREEN._replace(pane=pane), SCREEN._replace(is_help=True)):
        lines = lines_of(screen, figures_of(problems=9), width, height, "no answer")
        assert len(lines) <= height
        assert all(len(one.text) <= width for one in lines)


def test_alarms_stand_above_the_tables() -> None:
    """Three of them, and how many more there are; their pane has all."""
    lines = lines_of(SCREEN, figures_of(problems=5), 96, 40)
    assert ["! problem 0", "! problem 1", "! problem 2", "! 2 more: 6 shows all"] == [
        one.text for one in lines if one.style == ALARM
    ]
    assert "leading, NOT READY" in lines[0].text
    pane = lines_of(SCREEN._replace(pane="alarms"), figures_of(problems=5), 96, 40)
    assert [f"problem {number}" for number in range(5)] == [one.text for one in pane[-5:]]


def test_styles() -> None:
    """The first line is bold, headings are marked, and a lost server is an alarm."""
    lines = lines_of(SCREEN, figures_of(), 96, 24, "no answer since 12:00:00: refused")
    assert BOLD == lines[0].style
    assert ["no answer since 12:00:00: refused"] == [
        one.text for one in lines if one.style == ALARM
    ]
    assert 3 == sum(one.style == HEADING for one in lines)


def first_cells(screen: Screen, width: int = 100) -> list[str]:
    """The first words of the rows of a pane."""
    lines = lines_of(screen, figures_of(), width, 40)
    start = next(index for index, one in enumerate(lines) if one.style == HEADING)
    return [one.text.split()[0] for one in lines[start + 1 :]]


def pressed(*keys: str, screen: Screen = SCREEN) -> Screen:
    """The screen after some keys."""
    for key in keys:
        screen = press(screen, key, page_rows=2)
    return screen


def test_sorting() -> None:
    """Right and left choose the column, r turns it round; what is not known stays last."""
    assert ["readers", "idle", r"\x1b[31mred"] == first_cells(pressed("5"))
    assert ["idle", "readers", r"\x1b[31mred"] == first_cells(pressed("5", "r"))
    assert [r"\x1b[31mred", "idle", "readers"] == first_cells(pressed("5", "left"))
    assert ["a", "orders", "payments"] == first_cells(pressed("3", "left"))
    assert ["payments", "orders", "a"] == first_cells(pressed("3", "left", "r"))
    # Each pane keeps its own, also in the overview.
    screen = pressed("3", "left", "2", "right", "1")
    assert (("topics", "topic", False), ("requests", "errors_per_s", False)) == screen.sorts
    assert ("lag", False) == screen.sort_of("groups")


def test_sorting_has_no_effect_where_nothing_is_sorted() -> None:
    """In the overview, and among alarms."""
    for pane in ("1", "6"):
        assert pressed(pane) == pressed(pane, "left", "right", "r")


def test_panes() -> None:
    """By number, or one after the other; another number does nothing."""
    assert list(PANES) == [pressed(str(number)).pane for number in range(1, len(PANES) + 1)]
    assert "requests" == pressed("tab").pane
    assert "overview" == pressed("6", "tab").pane
    assert "groups" == pressed("5", "7", "0", "x").pane


def test_moving() -> None:
    """Rows move by one, or by a page; never above the first, and another pane begins there."""
    assert 1 == pressed("3", "down").top_row
    assert 3 == pressed("3", "page down", "down").top_row
    assert 0 == pressed("3", "down", "page up").top_row
    assert 0 == pressed("3", "down", "home").top_row
    assert 0 == pressed("3", "down", "4").top_row
    assert ["payments", "orders"] == first_cells(pressed("3", "down"))
    assert ["orders"] == first_cells(pressed("3", "page down", "page down", "page down"))


def test_help_fits_a_usual_terminal() -> None:
    """Of 80 columns the last one stays free, and 24 lines have the head as well."""
    assert [] == [one for one in HELP.splitlines() if len(one) > 79]
    assert len(HELP.splitlines()) < 18


def test_interval_pause_help_and_end() -> None:
    """Plus is longer, minus shorter, within limits; any key ends the help."""
    assert 5.0 == pressed("+").interval_s
    assert 1.0 == pressed("-").interval_s
    assert (60.0, 0.5) == (pressed(*"+" * 9).interval_s, pressed(*"-" * 9).interval_s)
    assert 2.0 == pressed("+", screen=SCREEN._replace(interval_s=1.5)).interval_s
    paused = pressed("p")
    assert (True, False) == (paused.is_paused, pressed(" ", screen=paused).is_paused)
    assert "paused" in lines_of(paused, figures_of(), 96, 24)[0].text
    asked = pressed("h")
    assert "quit" in text(lines_of(asked, figures_of(), 96, 24))
    assert SCREEN == pressed("x", screen=asked) == pressed("h", screen=asked)
    assert pressed("q", screen=asked).is_over


def test_a_server_that_stands_by() -> None:
    """It has no node yet, and no rows; the head says what it waits for."""
    server = {"node_id": None, "leadership": "standby", "ready": False, "started": False}
    standby = sample_at(1.0, partitions=None, groups=None, anomalies=None, server=server)
    lines = lines_of(SCREEN, Watch().take(standby), 96, 24)
    assert "kgw 1.2.3 at 127.0.0.1:9644  up 25 h  standby, NOT READY" in lines[0].text
    assert [] == first_cells_of(lines)


def first_cells_of(lines: list[Line]) -> list[str]:
    """What stands below the last heading."""
    start = max(index for index, one in enumerate(lines) if one.style == HEADING)
    return [one.text for one in lines[start + 1 :]]


def test_a_snapshot_has_every_table() -> None:
    """As many rows of each as asked for, and alarms where there are some."""
    shown = text(snapshot_of(SCREEN, figures_of(problems=1), 120, rows=1))
    assert 5 == sum(one in shown for one in ("API", "TOPIC", "GROUP", "ALARM", "partition "))
    assert ("problem 0" in shown, "payments" in shown) == (True, False)
    assert "ALARM" not in text(snapshot_of(SCREEN, figures_of(), 120, rows=1))


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (None, "?"),
        (0, "0"),
        (7, "7"),
        (0.04, "0.0"),
        (12.34, "12.3"),
        (123.4, "123"),
        (999.4, "999"),
        (999.6, "1.00k"),
        (9_996, "10.0k"),
        (1_234_567, "1.23M"),
        (-5_000, "-5.00k"),
        (1e16, "10000T"),
    ],
)
def test_numbers(number: float | None, expected: str) -> None:
    """Three digits count."""
    assert expected == show_number(number)


@pytest.mark.parametrize(
    ("number", "expected"),
    [(0, "0 B"), (1_000, "0.98 KB"), (1_536, "1.50 KB"), (5 << 30, "5.00 GB")],
)
def test_sizes(number: float, expected: str) -> None:
    """Powers of 1024, as settings have them."""
    assert expected == show_bytes(number)
