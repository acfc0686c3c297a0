"""Names of files: like SMQ's, each has a UTC second. Readers of SMQ sort by name; a chain does not.

The names end in `.kgw`. SMQ's broker appends records that others publish to a file named after the
second, whoever wrote it (seen with 4.48), and no rule keeps this from undoing a change of ours in
between. It reads files whatever their names end in (seen, too).
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

ENDING: Final = ".kgw"
_FORMAT: Final = f"%Y-%m-%d-%H-%M-%S{ENDING}"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# A year of five digits would sort before all others; this leaves a year of seconds after it.
_LATEST: Final = datetime(9998, 12, 31, 23, 59, 59, tzinfo=UTC)


def next_name(last_name: str, wall_ms: int) -> str:
    """Return the name of a file begun now, greater than the last one given, "" for none.

    If the clock has not passed the last name, the new one is a second later than that. Raises
    ValueError when the last name is none of ours.
    """
    latest_s = int((_LATEST - _EPOCH).total_seconds())
    begun = _EPOCH + timedelta(seconds=min(max(wall_ms // 1000, 0), latest_s))
    if last_name:
        last = datetime.strptime(last_name, _FORMAT).replace(tzinfo=UTC)
        begun = max(begun, last + timedelta(seconds=1))
    return begun.strftime(_FORMAT)
