"""The test of the fence: whether the filer refuses what it has to refuse.

That only one gateway writes to a partition rests on it alone. A filer that is too old to know
`expected_extended` ignores it without a word, and one behind something that answers in its place
may, too; so it is tried at every start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kgw.backend.seaweedmq.filer import (
    ConditionFailedError,
    Entry,
    EntryExistsError,
    FilerError,
    OutcomeUnknownError,
)
from kgw.errors import DataDirectoryError, StorageError

if TYPE_CHECKING:
    from kgw.backend.seaweedmq.filer import Filer

_ATTRIBUTE: Final = "kgw-fence"
_BEFORE: Final = b"before"
_NEVER: Final = b"never"
_AFTER: Final = b"after"


async def check_fence(filer: Filer, directory: str, name: str) -> None:
    """Try it with an entry of that name, which nobody else has, and remove it again.

    Raises DataDirectoryError when the filer cannot be relied on, or when nobody knows.
    """
    try:
        try:
            await _try(filer, directory, name)
        finally:
            await filer.delete(directory, name)
    except DataDirectoryError:
        raise
    except StorageError as error:
        raise DataDirectoryError(
            f"whether the filer refuses stale writers cannot be tested: {error}"
        ) from error


async def _try(filer: Filer, directory: str, name: str) -> None:
    await filer.create(directory, _entry(name, _BEFORE))
    try:
        await filer.create(directory, _entry(name, _AFTER))
    except EntryExistsError:
        pass
    else:
        raise DataDirectoryError(
            f"the filer has made {directory}/{name} twice, exclusively both times: two gateways "
            "could write to one partition. kgw needs SeaweedFS 4.48 or later"
        )
    try:
        await filer.update(directory, _entry(name, _AFTER), {_ATTRIBUTE: _NEVER})
    except ConditionFailedError:
        pass
    except (OutcomeUnknownError, FilerError):
        raise
    else:
        raise DataDirectoryError(
            f"the filer has changed {directory}/{name} under a condition that was false: two "
            "gateways could write to one partition. kgw needs SeaweedFS 4.48 or later"
        )
    await filer.update(directory, _entry(name, _AFTER), {_ATTRIBUTE: _BEFORE})
    found = await filer.look_up(directory, name)
    if found is None or found.extended.get(_ATTRIBUTE) != _AFTER:
        raise DataDirectoryError(
            f"the filer has not kept the attributes of {directory}/{name}, under which kgw writes"
        )


def _entry(name: str, value: bytes) -> Entry:
    return Entry(name, content=value, extended={_ATTRIBUTE: value})
