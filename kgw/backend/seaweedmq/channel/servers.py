"""Remembers which volume servers have failed lately. Pure.

For a while, reads try a server that hangs only after all others. So if fifty chunks have a copy on
another server, only the first read is delayed. Then reads try the server again, because nothing
else shows that it works again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

from kgw.problems import VOLUME_SERVER, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SILENT_S: Final = 0.25
"""If a server has not answered a read in this time, the next server is asked for the chunk, too. A
link of 1 Gbit/s transfers a chunk of 8 MB in less time."""

AVOIDED_S: Final = 10.0
"""How long reads avoid a server that did not answer."""

_TOLD_AFTER_S: Final = 1.0
"""A server is reported only if it fails again at least this long after its first failure."""
_FORGOTTEN_S: Final = 60.0
"""How long after its last failure a server is reported if no request is sent to it."""


class Named(Protocol):
    """Any object with the address of a server."""

    @property
    def url(self) -> str:
        """The server's `host:port`."""


READING: Final = "reads"
UPLOADING: Final = "uploads"

_ServerT = TypeVar("_ServerT", bound=Named)


class _Trouble(NamedTuple):
    since_s: float
    last_s: float
    is_silent: bool
    why: str


class Servers:
    """The failures of each server. Used only in the event loop.

    Reads and uploads are counted separately: a server whose disk is full can still be read.
    """

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self._monotonic_s = monotonic_s
        self._troubles: dict[tuple[str, str], _Trouble] = {}

    def note_trouble(self, url: str, kind: str, why: str, *, is_silent: bool = True) -> None:
        """Record that a read or an upload has failed at a server, or that it does not answer."""
        now_s = self._monotonic_s()
        known = self._troubles.get((url, kind))
        since_s = now_s if known is None or now_s > known.last_s + _FORGOTTEN_S else known.since_s
        self._troubles[url, kind] = _Trouble(since_s, now_s, is_silent, why)

    def note_answer(self, url: str, kind: str) -> None:
        """Record that a server has answered, even if the answer is that it lacks the chunk."""
        self._troubles.pop((url, kind), None)

    def is_avoided(self, url: str) -> bool:
        """Return whether reads should try a server last."""
        now_s = self._monotonic_s()
        return any(
            known is not None and known.is_silent and now_s < known.last_s + AVOIDED_S
            for known in (self._troubles.get((url, kind)) for kind in (READING, UPLOADING))
        )

    def in_order(self, servers: Sequence[_ServerT]) -> Sequence[_ServerT]:
        """Return the servers, with the avoided ones at the end."""
        if not self._troubles or len(servers) < 2:
            return servers
        return sorted(servers, key=lambda one: self.is_avoided(one.url))

    @property
    def problems(self) -> list[Problem]:
        """The servers whose requests have failed for a while.

        Servers with a single failure are left out. If a server pauses for a moment, another server
        answers the read, and no request shows that the first server works again.
        """
        now_s = self._monotonic_s()
        return [
            Problem(
                VOLUME_SERVER,
                f"{kind} fail at the volume server {url}: {known.why}"
                + ("; reads try it last" if self.is_avoided(url) else ""),
            )
            for (url, kind), known in self._troubles.items()
            if known.since_s + _TOLD_AFTER_S <= known.last_s
            and now_s <= known.last_s + _FORGOTTEN_S
        ]
