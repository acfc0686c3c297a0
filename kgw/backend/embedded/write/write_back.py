"""Segments on their way from the page cache to the disk, before somebody waits for them.

What the journal vouches for, and what a relaxed log has answered, is synced later. Left to that
sync it goes to the disk in one piece, and whatever else is synced meanwhile waits behind it: with
16 MB of segments at a time, a journal's sync of 0.14 ms took up to 24. So the system is asked to
write as segments grow, which proves nothing and leaves the sync that does with little to do.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from kgw.backend.embedded.failures import NoThreadError
from kgw.logs import EventLogger

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.backend.embedded.log.segment import Segment

_log = EventLogger(__name__)

WRITE_BACK_BYTES: Final = 256 << 10
"""So much of a segment is handed on at a time: of 1 MB a sync beside it still waited 1 ms."""

CALM_BYTES: Final = 4 << 20
"""Beside syncs that have no more to write the event loop goes on to write into the page cache."""


class WriteBack:
    """Which segments have grown, and one job at a time that hands them on."""

    def __init__(self, submit: Callable[[Callable[[], None]], object]) -> None:
        """`submit` has a function run in a thread that may wait for the disk.

        Or it raises NoThreadError.
        """
        self._submit = submit
        # Its items are safe to add and to take from two threads.
        self._grown: OrderedDict[Segment, None] = OrderedDict()
        self._is_running = False
        self._has_failed = False

    def note(self, segment: Segment) -> None:
        """Have a segment handed on that has grown; the faster it grows, the more at a time."""
        self._grown[segment] = None
        if not self._is_running:
            self._is_running = True
            try:
                self._submit(self._run)
            except NoThreadError as error:
                # It is told of again when it has grown further.
                self._grown.pop(segment, None)
                self._is_running = False
                self._note_failure(segment, error)

    def _run(self) -> None:
        # One that is noted just before the end may be left for when it has grown again.
        while self._grown:
            segment, _ = self._grown.popitem(last=False)
            try:
                segment.write_back()
            except Exception as error:  # noqa: BLE001 - a bug must not end it for all segments
                self._note_failure(segment, error)
        self._is_running = False

    def _note_failure(self, segment: Segment, error: Exception) -> None:
        """Say so, once: a sync writes what was not handed on."""
        if not self._has_failed:
            self._has_failed = True
            _log.error("a segment could not be handed on", error=error, path=segment.log_path)
