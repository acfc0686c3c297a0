"""Which volume servers have not answered lately. Pure.

One that hangs is tried last by other reads for a while: of fifty chunks that have a copy elsewhere
the first one waits for it. After a while it is tried again: nothing else says that it is back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

from kgw.problems import VOLUME_SERVER, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SILENT_S: Final = 0.25
"""When a server has not answered a read by then, the next one is asked for the chunk, too. One of
8 MB takes less over a link of 1 Gbit/s."""

AVOIDED_S: Final = 10.0
"""How long it is tried last after it was silent."""

_TOLD_AFTER_S: Final = 1.0
"""A server that was in trouble once is not told of. One is that is in trouble again, at least so
much later."""
_FORGOTTEN_S: Final = 60.0
"""How long it is told of after it was silent, where nobody asks it any more."""


class Named(Protocol):
    """A server, as far as it has an address."""

    @property
    def url(self) -> str:
        """Its `host:port`."""


READING: Final = "reads"
UPLOADING: Final = "uploads"

_ServerT = TypeVar("_ServerT", bound=Named)


class _Trouble(NamedTuple):
    since_s: float
    last_s: float
    is_silent: bool
    why: str


class Servers:
    """What is known of each server that is in trouble. Used in the loop alone.

    Of reads and uploads by themselves: a disk that is full can be read.
    """

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self._monotonic_s = monotonic_s
        self._troubles: dict[tuple[str, str], _Trouble] = {}

    def note_trouble(self, url: str, kind: str, why: str, *, is_silent: bool = True) -> None:
        """Note that something of a kind has failed at a server, or that it does not answer."""
        now_s = self._monotonic_s()
        known = self._troubles.get((url, kind))
        since_s = now_s if known is None or now_s > known.last_s + _FORGOTTEN_S else known.since_s
        self._troubles[url, kind] = _Trouble(since_s, now_s, is_silent, why)

    def note_answer(self, url: str, kind: str) -> None:
        """Note that a server has done something of a kind, or has said what it has not."""
        self._troubles.pop((url, kind), None)

    def is_avoided(self, url: str) -> bool:
        """Whether a server is to be tried last by reads."""
        now_s = self._monotonic_s()
        return any(
            known is not None and known.is_silent and now_s < known.last_s + AVOIDED_S
            for known in (self._troubles.get((url, kind)) for kind in (READING, UPLOADING))
        )

    def in_order(self, servers: Sequence[_ServerT]) -> Sequence[_ServerT]:
        """Return the servers with those that are avoided behind the others."""
        if not self._troubles or len(servers) < 2:
            return servers
        return sorted(servers, key=lambda one: self.is_avoided(one.url))

    @property
    def problems(self) -> list[Problem]:
        """The servers that have been in trouble for a while.

        Those that have been noted once are left out. When a server pauses for a moment, another
        one that has the chunk answers in its place, and nobody learns that the first goes on.
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
