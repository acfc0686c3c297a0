"""Names of a chain's files, with a UTC second as in SMQ. SMQ's readers sort files by name.

The names end in `.kgw`. SMQ's broker appends published records to the file named after the second,
even if kgw wrote that file (seen with 4.48), and could undo our changes of it. So our names have
another ending. The broker reads files with any ending (seen, too).
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

ENDING: Final = ".kgw"
_FORMAT: Final = f"%Y-%m-%d-%H-%M-%S{ENDING}"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# Names with a five-digit year would sort wrongly. This leaves a year of later names.
_LATEST: Final = datetime(9998, 12, 31, 23, 59, 59, tzinfo=UTC)


def next_name(last_name: str, wall_ms: int) -> str:
    """Return the name of a new file, greater than `last_name`, which is "" for the first file.

    If the clock has not passed the last name's second, the next second is used. Raises ValueError
    if the last name is not kgw's.
    """
    latest_s = int((_LATEST - _EPOCH).total_seconds())
    begun = _EPOCH + timedelta(seconds=min(max(wall_ms // 1000, 0), latest_s))
    if last_name:
        last = datetime.strptime(last_name, _FORMAT).replace(tzinfo=UTC)
        begun = max(begun, last + timedelta(seconds=1))
    return begun.strftime(_FORMAT)
