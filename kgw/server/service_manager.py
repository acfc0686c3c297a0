"""Messages between kgw and the service manager that started it: systemd's protocols.

Environment variables of the manager have the socket for messages (sd_notify), the interval of
keep-alive messages (sd_watchdog_enabled), and the sockets that it has opened (sd_listen_fds).
Without them this module is not imported.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.config import ConfigError
from kgw.logs import EventLogger, QuietLog
from kgw.types import printable

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping

    from kgw.clock import Clock, Timer

_log = EventLogger(__name__)

TELL_INTERVAL_S: Final = 5.0
EXTEND_S: Final = 60.0
"""The extra time for a start or a stop, from each message that requests it."""

_VARIABLES = (
    "NOTIFY_SOCKET",
    "WATCHDOG_PID",
    "WATCHDOG_USEC",
    "LISTEN_PID",
    "LISTEN_FDS",
    "LISTEN_FDNAMES",
)


class Instructions(NamedTuple):
    """The instructions of a service manager in the environment."""

    notify_socket: str = ""
    """The socket to which messages are sent; "" for none."""
    watchdog_s: float | None = None
    """The manager ends a process that sends no message for this time."""
    socket_names: tuple[str, ...] = ()
    """The names of the sockets that it passes, in the order of their descriptors."""


def take_instructions(environ: MutableMapping[str, str], process_id: int) -> Instructions:
    """Return the instructions for this process, and remove them for its child processes.

    Raises ConfigError for values that cannot be understood.
    """
    told = {name: environ.pop(name, "") for name in _VARIABLES}
    watchdog_us = _number("WATCHDOG_USEC", told)
    if told["WATCHDOG_PID"] and _number("WATCHDOG_PID", told) != process_id:
        watchdog_us = 0
    count = _number("LISTEN_FDS", told)
    names: tuple[str, ...] = ()
    if count and _number("LISTEN_PID", told) == process_id:
        names = ("",) * count
        if told["LISTEN_FDNAMES"]:
            names = tuple(told["LISTEN_FDNAMES"].split(":"))
        if len(names) != count:
            raise ConfigError(f"LISTEN_FDNAMES has {len(names)} names, LISTEN_FDS says {count}")
    notify_socket = told["NOTIFY_SOCKET"]
    if notify_socket[:1] not in {"", "/", "@"}:
        raise ConfigError(f"NOTIFY_SOCKET: {notify_socket!r} is not the path of a socket")
    return Instructions(notify_socket, watchdog_us / 1e6 if watchdog_us else None, names)


def _number(name: str, told: MutableMapping[str, str]) -> int:
    text = told[name]
    if not text:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) <= 20):
        raise ConfigError(f"{name}: {text[:40]!r} is not a whole number")
    return int(text)


class ServiceManager:
    """Tells the service manager the state of this process.

    Called in the event loop's thread only: a loop that hangs sends no keep-alive message.
    """

    def __init__(self, told: Instructions, clock: Clock, status: Callable[[], str]) -> None:
        """`status` returns a short text about the state of the process."""
        self._clock = clock
        self._status = status
        self._told_status = ""
        self._watchdog_s = told.watchdog_s
        self._extends = False
        """Whether the present phase may take longer than the manager would wait."""
        self._timer: Timer | None = None
        self._socket: socket.socket | None = None
        self._quiet = QuietLog(_log)
        self._address = told.notify_socket
        if self._address:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.setblocking(False)
        if self._address.startswith("@"):
            # Linux: a name in the abstract namespace.
            self._address = "\0" + self._address[1:]

    def starting(self) -> None:
        """Ask the manager to wait for a long start."""
        self._extends = True
        self._tell()

    def ready(self) -> None:
        """Report that clients are served, or that this standby process is ready."""
        self._extends = False
        self._tell("READY=1")

    def stopping(self) -> None:
        """Report that the stop has begun, and ask the manager to wait for its end."""
        self._extends = True
        self._tell("STOPPING=1")

    def close(self) -> None:
        """Send no more messages."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _tell(self, *news: str) -> None:
        """Send news, the status if it has changed, and a keep-alive message."""
        if self._socket is None:
            return
        lines = [*news]
        now_s = self._clock.monotonic_s()
        # In one line: the status may contain names that users have chosen.
        status = printable(self._status())
        if status != self._told_status:
            lines.append(f"STATUS={status}")
            self._told_status = status
        if self._extends:
            lines.append(f"EXTEND_TIMEOUT_USEC={EXTEND_S * 1e6:.0f}")
        interval_s = TELL_INTERVAL_S
        if self._watchdog_s is not None:
            lines.append("WATCHDOG=1")
            interval_s = min(interval_s, self._watchdog_s / 2)
        if lines:
            try:
                self._socket.sendto("\n".join(lines).encode(), self._address)
            except OSError as error:
                # The manager may be restarting itself; the next message may arrive.
                fields = {"reason": error.strerror}
                self._quiet.warning("the service manager cannot be told", "", now_s, fields)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._clock.call_at(now_s + interval_s, self._tell)
