from __future__ import annotations

import io
import json
import logging
from typing import TYPE_CHECKING

import pytest

from kgw import logs

if TYPE_CHECKING:
    from collections.abc import Iterator


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def keep_logging() -> Iterator[None]:
    """Puts the process's logging back as it was."""
    root = logging.getLogger()
    handlers, level, raises = root.handlers[:], root.level, logging.raiseExceptions
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.raiseExceptions = raises


def written(style: str = "text", level: str = "info") -> io.StringIO:
    """Return where log lines go from now on."""
    out = io.StringIO()
    logs.configure(style, level, out)
    return out


def test_text_line() -> None:
    """For people: time, level, logger, event, fields."""
    out = written()
    logs.EventLogger("kgw.x").info("listening", port=9092, host="a b", name='q"')
    assert out.getvalue().endswith(
        """ info    kgw.x  listening  port=9092 host="a b" name="q'"\n"""
    )


def test_json_line() -> None:
    """For machines: one object a line, fields beside the event, numbers as numbers."""
    out = written("json", "debug")
    logs.EventLogger("kgw.x").debug("listening", port=9092, event="other", path=b"x")
    line = json.loads(out.getvalue())
    assert line.pop("time").endswith("Z")
    expected = {
        "level": "debug",
        "logger": "kgw.x",
        "event": "listening",
        "port": 9092,
        "path": "b'x'",
    }
    assert expected == line


def test_auto_follows_the_stream() -> None:
    """Text on a terminal, coloured from warnings up; JSON into a file or a pipe."""
    terminal, pipe = Terminal(), io.StringIO()
    logs.configure(stream=terminal)
    logs.EventLogger("kgw.x").warning("one")
    logs.configure(stream=pipe)
    logs.EventLogger("kgw.x").warning("two")
    assert terminal.getvalue().startswith("\x1b[33m")
    assert "two" == json.loads(pipe.getvalue())["event"]


def test_levels() -> None:
    """Lines below the level are not written."""
    out = written("text", "warning")
    log = logs.EventLogger("kgw.x")
    log.info("no")
    log.debug("no")
    log.error("yes")
    assert 1 == len(out.getvalue().splitlines())


@pytest.mark.parametrize("style", ["text", "json"])
def test_control_characters_are_escaped(style: str) -> None:
    """Nothing that a client sent can end a line, move a cursor or reverse the text."""
    out = written(style)
    logs.EventLogger("kgw.x").info("closed", client_id="a\nb\x1b[2J\u202e\0\ud800")
    assert 1 == out.getvalue().count("\n")
    assert out.getvalue()[:-1].isprintable()
    assert "\\n" in out.getvalue()


def test_long_values_are_cut() -> None:
    """A client id of 32 KB does not fill the log."""
    out = written()
    logs.EventLogger("kgw.x").info("closed", client_id="x" * 32_000)
    assert len(out.getvalue()) < 700
    assert "(32000 characters)" in out.getvalue()


@pytest.mark.parametrize("style", ["text", "json"])
def test_traceback(style: str) -> None:
    """An error brings its traceback."""
    out = written(style)
    try:
        raise ValueError("inner\x1b")
    except ValueError as error:
        logs.EventLogger("kgw.x").error("failed", error=error)
    assert "ValueError: inner" in out.getvalue()
    assert "\x1b" not in out.getvalue()


def test_plain_logging_goes_the_same_way() -> None:
    """Libraries that use the standard library's logging come out in the same form."""
    out = written("json", "info")
    logging.getLogger("asyncio").warning("%s took %d ms", "x", 5)
    assert "x took 5 ms" == json.loads(out.getvalue())["event"]


@pytest.mark.parametrize("library", ["asyncio", "aiosqlite"])
def test_debug_lines_of_libraries_are_left_out(library: str) -> None:
    """One's are about its loop, the other's hold what is written to the state."""
    out = written("json", "debug")
    logging.getLogger(library).debug("executing %s", b"a row")
    assert out.getvalue() == ""


def test_a_quiet_log_forgets_kinds() -> None:
    """Kinds may have names of clients: there are never more than the limit."""
    out = written("json")
    quiet = logs.QuietLog(logs.EventLogger("kgw.x"), max_kinds=2)
    assert [True, False] == [quiet.info("seen", "a", 1.0, {"kind": "a"}) for _ in range(2)]
    assert quiet.info("seen", "b", 1.0, {"kind": "b"})
    assert quiet.info("seen", "c", 1.0, {"kind": "c"})
    assert quiet.info("seen", "a", 1.0, {"kind": "a"})
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [("info", "a"), ("info", "b"), ("info", "c"), ("info", "a")] == [
        (line["level"], line["kind"]) for line in lines
    ]
    assert not any("and_before_it" in line for line in lines)


@pytest.mark.parametrize(
    ("level", "written"),
    [("debug", ["fine", "told"]), ("info", ["told"]), ("off", [])],
)
def test_a_logger_has_a_level_of_its_own(level: str, written: list[str]) -> None:
    """Above or below that of the others."""
    stream = io.StringIO()
    logs.configure("json", "error", stream)
    logs.set_level("kgw.tests.own", level)
    own, other = logs.EventLogger("kgw.tests.own"), logs.EventLogger("kgw.tests.other")
    assert own.has_debug is (level == "debug")
    own.debug("fine")
    own.info("told")
    other.info("not told")
    assert written == [json.loads(line)["event"] for line in stream.getvalue().splitlines()]
