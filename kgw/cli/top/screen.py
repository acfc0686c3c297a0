"""The screen of `kgw top`: computes its lines from figures and pressed keys. Pure."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from kgw.cli.shared.formats import format_duration
from kgw.cli.shared.output import text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kgw.cli.top.figures import Figures, Row

INTERVALS_S = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
OVERVIEW = "overview"
ALARMS_SHOWN = 3
"""How many alarms are shown above the tables; the alarms pane has all of them."""

PLAIN, BOLD, HEADING, ALARM = "plain", "bold", "heading", "alarm"

HELP = """\
q            quit                      1 ... 6      panes: overview, requests,
space, p     pause, go on                           topics, partitions, groups,
left, right  sort by another column                 alarms
r            sort the other way round  tab          the next pane
+, -         refresh less, more often  up, down,    move through the rows
h, ?         this help                 page keys
                                       home         back to the first row

records/s and bytes/s are how fast ends and sizes of partitions grow; in, out
and requests/s are what clients send and get. A question mark stands for what
is not known (yet). read/s is how fast a group's committed offsets grow, lag/s
how fast its lag does; the server looks at lag every five seconds at most.
"""


class Line(NamedTuple):
    """One line of the screen."""

    text: str
    style: str = PLAIN


class Column(NamedTuple):
    """One column of a table. The first column gets the width that is left."""

    field: str
    heading: str
    show: Callable[[Any], str]
    width: int = 11


class Screen(NamedTuple):
    """What the user has chosen with keys."""

    address: str
    interval_s: float = 2.0
    pane: str = OVERVIEW
    sorts: tuple[tuple[str, str, bool], ...] = ()
    """For each pane its sort field, and whether the order is reversed."""
    top_row: int = 0
    is_paused: bool = False
    is_help: bool = False
    is_over: bool = False

    def sort_of(self, pane: str) -> tuple[str, bool]:
        """Return the sort field of a pane, and whether the order is reversed."""
        for name, field, is_reversed in self.sorts:
            if name == pane:
                return field, is_reversed
        return (UNSORTED if pane == "alarms" else TABLES[pane][1].field), False


# --- formatting numbers --------------------------------------------------------------------------


def show_number(number: float | None) -> str:
    """Return a number with three significant digits, as in 12.3k; "?" if it is unknown."""
    return _scaled(number, 1_000, ("", "k", "M", "G", "T"))


def show_bytes(number: float | None) -> str:
    """Return bytes in a unit (a power of 1024) that leaves three digits; "?" if unknown."""
    return _scaled(number, 1_024, (" B", " KB", " MB", " GB", " TB"))


def show_share(share: float | None) -> str:
    """Return a fraction of one core as a percentage."""
    return "?" if share is None else f"{share * 100:.0f} %"


def show_time(seconds: float | None) -> str:
    """Return seconds as a text in milliseconds."""
    return "?" if seconds is None else f"{seconds * 1000:.3g} ms"


def _scaled(number: float | None, step: int, units: Sequence[str]) -> str:
    if number is None:
        return "?"
    scaled = float(number)
    for unit in units:
        if abs(scaled) < 999.5 or unit == units[-1]:
            break
        scaled /= step
    digits = 0 if abs(scaled) >= 99.95 or (unit == units[0] and scaled == int(scaled)) else 1
    if abs(scaled) < 9.995 and unit != units[0]:
        digits = 2
    text = f"{scaled:.{digits}f}"
    return f"{'0' if text in {'-0', '-0.0'} else text}{unit}"


_NUMBER = partial(Column, show=show_number)
_BYTES = partial(Column, show=show_bytes)
TABLES: dict[str, tuple[Column, ...]] = {
    "requests": (
        Column("api", "API", text_of),
        _NUMBER("requests_per_s", "requests/s"),
        _NUMBER("errors_per_s", "errors/s"),
        _NUMBER("requests", "requests"),
        _NUMBER("errors", "errors"),
    ),
    "topics": (
        Column("topic", "TOPIC", text_of),
        _NUMBER("records_per_s", "records/s"),
        _BYTES("bytes_per_s", "bytes/s"),
        _NUMBER("records", "records"),
        _BYTES("size_bytes", "size"),
        _NUMBER("partitions", "partitions"),
    ),
    "partitions": (
        Column("topic", "TOPIC", text_of),
        _NUMBER("records_per_s", "records/s"),
        Column("partition", "partition", text_of),
        _BYTES("bytes_per_s", "bytes/s"),
        Column("end_offset", "end", text_of, 14),
        _NUMBER("records", "records"),
        _BYTES("size_bytes", "size"),
    ),
    "groups": (
        Column("group", "GROUP", text_of),
        _NUMBER("lag", "lag"),
        Column("time_lag_ms", "behind", format_duration),
        _NUMBER("read_per_s", "read/s"),
        _NUMBER("lag_per_s", "lag/s"),
        _NUMBER("partitions", "partitions"),
        _NUMBER("anomalies", "anomalies"),
    ),
    "alarms": (Column("detail", "ALARM", text_of),),
}
"""The columns of each pane. The first column is text; the second is the default sort field."""
UNSORTED = ""
"""The sort field of alarms, which are already sorted, the worst first."""
PANES = (OVERVIEW, *TABLES)
_IN_OVERVIEW = ("requests", "topics", "groups")


# --- keys ----------------------------------------------------------------------------------------


def press(screen: Screen, key: str, page_rows: int) -> Screen:
    """Return the screen after a pressed key, given as a character or a special key's name."""
    if key == "q":
        return screen._replace(is_over=True)
    if key in {"h", "?"}:
        return screen._replace(is_help=not screen.is_help)
    if screen.is_help:
        return screen._replace(is_help=False)
    if key in {" ", "p"}:
        return screen._replace(is_paused=not screen.is_paused)
    if key in {"+", "=", "-"}:
        return screen._replace(interval_s=_next_interval(screen.interval_s, key == "-"))
    if key == "tab" or (key.isdigit() and 0 < int(key) <= len(PANES)):
        after = PANES.index(screen.pane) + 1
        index = after % len(PANES) if key == "tab" else int(key) - 1
        return screen._replace(pane=PANES[index], top_row=0)
    moves = {"up": -1, "down": 1, "page up": -page_rows, "page down": page_rows}
    if key in moves:
        return screen._replace(top_row=max(0, screen.top_row + moves[key]))
    if key == "home":
        return screen._replace(top_row=0)
    if key in {"left", "right", "r"} and screen.pane not in {OVERVIEW, "alarms"}:
        return _sorted_otherwise(screen, key)
    return screen


def _next_interval(interval_s: float, is_shorter: bool) -> float:
    if is_shorter:
        return max((one for one in INTERVALS_S if one < interval_s), default=interval_s)
    return min((one for one in INTERVALS_S if one > interval_s), default=interval_s)


def _sorted_otherwise(screen: Screen, key: str) -> Screen:
    fields = [one.field for one in TABLES[screen.pane]]
    field, is_reversed = screen.sort_of(screen.pane)
    if key == "r":
        is_reversed = not is_reversed
    else:
        step = 1 if key == "right" else -1
        field, is_reversed = fields[(fields.index(field) + step) % len(fields)], False
    others = tuple(one for one in screen.sorts if one[0] != screen.pane)
    return screen._replace(sorts=(*others, (screen.pane, field, is_reversed)), top_row=0)


# --- lines ---------------------------------------------------------------------------------------


def lines_of(
    screen: Screen, figures: Figures, width: int, height: int, lost: str = ""
) -> list[Line]:
    """Return the lines of the screen: at most `height` lines of at most `width` characters.

    `lost` says since when and why the server has not answered; "" if it answers.
    """
    lines = _head(screen, figures, width, lost)
    if screen.is_help:
        lines += [Line(""), *(Line(one) for one in HELP.splitlines())]
    elif screen.pane != OVERVIEW:
        lines += [Line(""), *_table(screen, figures, screen.pane, width, height - len(lines) - 1)]
    else:
        lines += _alarm_lines(figures)
        room = height - len(lines)
        for index, pane in enumerate(_IN_OVERVIEW):
            # Rows that a table does not use go to the tables below it.
            rows = room // (len(_IN_OVERVIEW) - index)
            part = [Line(""), *_table(screen, figures, pane, width, rows - 1)][: max(0, rows)]
            room -= len(part)
            lines += part
    return [Line(one.text[:width].rstrip(), one.style) for one in lines[: max(0, height)]]


def snapshot_of(screen: Screen, figures: Figures, width: int, rows: int) -> list[Line]:
    """Return all panes once, each with at most `rows` rows."""
    lines = _head(screen, figures, width, "")
    for pane in TABLES:
        if pane != "alarms" or figures.alarms:
            lines += [Line(""), *_table(screen, figures, pane, width, rows + 1)]
    return [Line(one.text[:width].rstrip(), one.style) for one in lines]


def _head(screen: Screen, figures: Figures, width: int, lost: str) -> list[Line]:
    server = figures.server
    clock = time.strftime("%H:%M:%S", time.localtime(figures.time_ms / 1000))
    lag_s = server["loop_lag_p99_s"]
    lag = "over 10 s" if lag_s is None else f"<= {show_time(lag_s)}"
    first = [
        f"kgw {text_of(server['version'])} at {screen.address}",
        "" if server["node_id"] is None else f"node {server['node_id']}",
        f"up {format_duration(server['uptime_ms'] // 1000 * 1000)}",
        f"{text_of(server['leadership'])}, {'ready' if server['ready'] else 'NOT READY'}",
        clock,
        "paused" if screen.is_paused else f"every {screen.interval_s:g} s",
    ]
    second = [
        f"connections {show_number(server['connections'])}",
        f"memory {show_bytes(server['resident_bytes'])}",
        f"of requests {show_bytes(server['request_memory_bytes'])}",
        f"processor {show_share(server['processor_share'])}",
        f"loop lag p99 {lag} (max {show_time(server['loop_lag_max_s'])})",
    ]
    third = [
        f"requests {show_number(server['requests_per_s'])}/s",
        f"errors {show_number(server['errors_per_s'])}/s",
        f"in {show_bytes(server['received_bytes_per_s'])}/s",
        f"out {show_bytes(server['sent_bytes_per_s'])}/s",
        f"appended {show_number(server['records_per_s'])} records/s",
        f"lag {show_number(server['lag'])}",
    ]
    return [
        *(Line(one, BOLD) for one in _wrapped(first, width)),
        *(Line(one) for part in (second, third) for one in _wrapped(part, width)),
        *([Line(text_of(lost), ALARM)] if lost else []),
    ]


def _wrapped(parts: Sequence[str], width: int) -> list[str]:
    """Join texts into lines, without breaking a text."""
    lines = [""]
    for part in parts:
        if lines[-1] and part and len(lines[-1]) + 2 + len(part) > width:
            lines.append("")
        lines[-1] += f"{'  ' if lines[-1] and part else ''}{part}"
    return lines


def _alarm_lines(figures: Figures) -> list[Line]:
    alarms = figures.alarms
    shown = [Line(f"! {text_of(one['detail'])}", ALARM) for one in alarms[:ALARMS_SHOWN]]
    if len(alarms) > ALARMS_SHOWN:
        shown.append(Line(f"! {len(alarms) - ALARMS_SHOWN} more: 6 shows all", ALARM))
    return shown


def _table(screen: Screen, figures: Figures, pane: str, width: int, height: int) -> list[Line]:
    """Return the heading and rows of a table, at most `height` lines."""
    columns = TABLES[pane]
    field, is_reversed = screen.sort_of(pane)
    rows: Sequence[Row] = getattr(figures, pane)
    if field != UNSORTED:
        rows = _sorted(rows, columns[0].field, field, is_reversed)
    first = min(screen.top_row, max(0, len(rows) - 1)) if pane == screen.pane else 0
    # Leave out columns at the right that do not fit; the first column gets the rest of the width.
    shown: list[Column] = []
    left = width - min(20, max(8, width // 3))
    for column in columns[1:]:
        if column.width + 2 > left:
            break
        shown.append(column)
        left -= column.width + 2
    wide = width - sum(one.width + 2 for one in shown)
    mark = {field: "^" if is_reversed else "v"}
    heading = f"{columns[0].heading} {mark.get(columns[0].field, '')}".strip()
    head = _cells(heading, wide, [(_head_of(one, mark), one.width) for one in shown])
    visible = rows[first : first + max(0, height - 1)]
    return [Line(head, HEADING)] + [
        Line(
            _cells(
                columns[0].show(row[columns[0].field]),
                wide,
                [(one.show(row[one.field]), one.width) for one in shown],
            )
        )
        for row in visible
    ]


def _head_of(column: Column, mark: dict[str, str]) -> str:
    return f"{mark.get(column.field, '')}{column.heading}"


def _cells(first: str, wide: int, others: Sequence[tuple[str, int]]) -> str:
    if len(first) > wide:
        first = f"{first[: wide - 1]}~"
    return first.ljust(wide) + "".join(f"  {text[:width]:>{width}}" for text, width in others)


def _sorted(rows: Sequence[Row], name: str, field: str, is_reversed: bool) -> list[Row]:
    """Sort numbers in descending and texts in ascending order; unknown values come last."""
    # First sort by name, so that rows with equal values keep their order.
    ordered = sorted(rows, key=lambda row: (row[name], row.get("partition", 0)))
    known = [one for one in ordered if one[field] is not None]
    is_text = bool(known) and isinstance(known[0][field], str)
    known.sort(key=lambda row: row[field], reverse=is_reversed if is_text else not is_reversed)
    return known + [one for one in ordered if one[field] is None]
