"""Log lines: text for people on a terminal, JSON elsewhere.

A line has an event, which is a constant, and fields; strings that clients send are in fields only.
Uses the standard library's logging with two formatters; docs/decisions/0032-logging.md says why.
"""

from __future__ import annotations

import logging
import sys
import time
from typing import TYPE_CHECKING, Any, TextIO

from kgw.terminals import has_colours
from kgw.types import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# The limit for client texts in log lines: a client id may have 32,767 bytes.
MAX_VALUE_CHARACTERS = 500

LOG_INTERVAL_S = 10.0
"""After a warning, further warnings of its kind are not logged for this time, so that they cannot
fill the log."""

_COLOURS = {"debug": "\x1b[2m", "warning": "\x1b[33m", "error": "\x1b[31m", "critical": "\x1b[31m"}
_RESET = "\x1b[0m"


class EventLogger:
    """A named logger that takes an event and fields: `log.info("listening", port=9092)`."""

    __slots__ = ("_logger",)

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    @property
    def has_debug(self) -> bool:
        """Whether lines of level debug are written."""
        return self._logger.isEnabledFor(logging.DEBUG)

    def debug(self, event: str, /, **fields: object) -> None:
        self._write(logging.DEBUG, event, fields)

    def info(self, event: str, /, **fields: object) -> None:
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, /, **fields: object) -> None:
        self._write(logging.WARNING, event, fields)

    def error(self, event: str, /, *, error: BaseException | None = None, **fields: object) -> None:
        """Log an event; with `error`, the traceback of this exception follows."""
        self._write(logging.ERROR, event, fields, error)

    def _write(
        self,
        level: int,
        event: str,
        fields: Mapping[str, object],
        error: BaseException | None = None,
    ) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, "%s", event, exc_info=error, extra={"kgw_fields": fields})


class TextFormatter(logging.Formatter):
    """`12:00:01.234 info    kgw.server  listening  port=9092`, coloured on a terminal."""

    def __init__(self, *, coloured: bool = False) -> None:
        super().__init__()
        self._coloured = coloured

    def format(self, record: logging.LogRecord) -> str:
        level = record.levelname.lower()
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        parts = [
            f"{clock}.{int(record.msecs):03d} {level:<7} {record.name}",
            escape(record.getMessage()),
        ]
        fields = " ".join(f"{name}={_quoted(value)}" for name, value in _fields(record).items())
        if fields:
            parts.append(fields)
        line = "  ".join(parts)
        if self._coloured and level in _COLOURS:
            line = f"{_COLOURS[level]}{line}{_RESET}"
        if record.exc_info:
            # The lines of a traceback stay separate. They are escaped, as the last one may have
            # text that a client sent.
            trace = self.formatException(record.exc_info)
            line += "\n" + "\n".join(f"    {escape(one)}" for one in trace.splitlines())
        return line


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time (UTC), level, logger, event, then the fields."""

    def __init__(self) -> None:
        super().__init__()
        from json import dumps

        self._dumps = dumps

    def format(self, record: logging.LogRecord) -> str:
        clock = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {
            "time": f"{clock}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": _cut(record.getMessage()),
        }
        for name, value in _fields(record).items():
            plain = value is None or isinstance(value, (bool, int, float))
            line.setdefault(name, value if plain else _cut(str(value)))
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return self._dumps(line)


class QuietLog:
    """Logs one line of a kind, and suppresses others of this kind for LOG_INTERVAL_S."""

    def __init__(self, log: EventLogger, *, max_kinds: int = 1_000) -> None:
        """When there are more kinds than `max_kinds`, all of them are forgotten."""
        self._log = log
        self._max_kinds = max_kinds
        self._next_s: dict[str, float] = {}
        self._suppressed: dict[str, int] = {}

    def info(self, event: str, kind: str, now_s: float, fields: Mapping[str, object]) -> bool:
        """Do the same as `warning`, at level info."""
        return self._say(self._log.info, event, kind, now_s, fields)

    def warning(self, event: str, kind: str, now_s: float, fields: Mapping[str, object]) -> bool:
        """Log a warning, or suppress it; return whether it was logged.

        A logged warning has the number of warnings of its kind that were suppressed before it.
        """
        return self._say(self._log.warning, event, kind, now_s, fields)

    def _say(
        self,
        write: Callable[..., None],
        event: str,
        kind: str,
        now_s: float,
        fields: Mapping[str, object],
    ) -> bool:
        if now_s < self._next_s.get(kind, 0.0):
            self._suppressed[kind] = self._suppressed.get(kind, 0) + 1
            return False
        if len(self._next_s) >= self._max_kinds:
            self._next_s.clear()
            self._suppressed.clear()
        self._next_s[kind] = now_s + LOG_INTERVAL_S
        suppressed = self._suppressed.pop(kind, 0)
        more = {"and_before_it": suppressed} if suppressed else {}
        write(event, **fields, **more)
        return True


def configure(style: str = "auto", level: str = "info", stream: TextIO | None = None) -> None:
    """Send every log line of the process to `stream` (standard error).

    `style` is `text`, `json`, or `auto`: text on a terminal and JSON elsewhere.
    """
    stream = stream or sys.stderr
    on_terminal = stream.isatty()
    formatter: logging.Formatter
    if style == "text" or (style == "auto" and on_terminal):
        formatter = TextFormatter(coloured=on_terminal and has_colours())
    else:
        formatter = JsonFormatter()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    numeric_level = logging.getLevelNamesMapping()[level.upper()]
    root.setLevel(numeric_level)
    # asyncio's debug lines are about the loop only, and aiosqlite's contain rows.
    for name in ("asyncio", "aiosqlite"):
        logging.getLogger(name).setLevel(max(logging.INFO, numeric_level))
    # If the log cannot be written (a closed pipe), logging must not print tracebacks about that.
    logging.raiseExceptions = False


def set_level(name: str, level: str) -> None:
    """Give a logger a level of its own, which can be `off`."""
    logger = logging.getLogger(name)
    logger.disabled = level == "off"
    if not logger.disabled:
        logger.setLevel(level.upper())


def escape(text: str) -> str:
    """Return text cut to a readable length, with control characters and line ends escaped."""
    return printable(_cut(text))


def _cut(text: str) -> str:
    if len(text) <= MAX_VALUE_CHARACTERS:
        return text
    return f"{text[:MAX_VALUE_CHARACTERS]}... ({len(text)} characters)"


def _quoted(value: object) -> str:
    text = escape(str(value))
    if isinstance(value, (bool, int, float)) or (text and " " not in text and '"' not in text):
        return text
    return '"' + text.replace('"', "'") + '"'


def _fields(record: logging.LogRecord) -> Mapping[str, object]:
    fields: Mapping[str, object] = getattr(record, "kgw_fields", {})
    return fields
