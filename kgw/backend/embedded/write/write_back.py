"""Segments on their way from the page cache to the disk, before somebody waits for them.

What the journal vouches for, and what a relaxed log has answered, is synced later. Left to that
sync it goes to the disk in one piece, and whatever else is synced meanwhile waits behind it
(docs/decisions/0071-writing-back-as-segments-grow.md). So the system is asked to write as segments
grow, which proves nothing and leaves the sync that does with little to do.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from kgw.logs import EventLogger

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.backend.embedded.log.segment import Segment

_log = EventLogger(__name__)

WRITE_BACK_BYTES: Final = 256 << 10
"""A segment is handed to the system when so much of it is new."""


class WriteBack:
    """Which segments have grown, and one job at a time that hands them to the system."""

    def __init__(self, submit: Callable[[Callable[[], None]], object]) -> None:
        """`submit` has a function run in a thread that may wait for the disk."""
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
            self._submit(self._run)

    def _run(self) -> None:
        # One that is noted just before the end may be left for when it has grown again.
        while self._grown:
            segment, _ = self._grown.popitem(last=False)
            try:
                segment.write_back()
            except Exception as error:  # noqa: BLE001 - a bug must not end it for all segments
                if not self._has_failed:
                    self._has_failed = True
                    _log.error(
                        "a segment could not be handed on", error=error, path=segment.log_path
                    )
        self._is_running = False
