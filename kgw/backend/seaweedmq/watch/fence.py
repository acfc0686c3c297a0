"""The test of the fence: whether the filer refuses what it has to refuse, and decides alone.

That only one gateway writes to a partition rests on it alone. A filer that is too old to know
`expected_extended` ignores it without a word, and one behind something that answers in its place
may, too; so it is tried at every start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import uuid4

from kgw.backend.seaweedmq.filer import (
    ConditionFailedError,
    Entry,
    EntryExistsError,
    FilerError,
    OutcomeUnknownError,
)
from kgw.backend.seaweedmq.path_rules import LEAST_NAME
from kgw.backend.seaweedmq.watch.versions import judge_version
from kgw.errors import DataDirectoryError, StorageError
from kgw.logs import EventLogger

if TYPE_CHECKING:
    from kgw.backend.seaweedmq.filer import Filer
    from kgw.clock import Clock

_ATTRIBUTE: Final = "kgw-fence"
_BEFORE: Final = b"before"
_NEVER: Final = b"never"
_AFTER: Final = b"after"
_ASK_S: Final = 3.0
"""For how long the masters are asked which filers there are: they may be out of a gateway's reach,
and nothing else of it needs them."""
_PATIENCE_S: Final = 16.0
"""For how long a filer that does not answer changes is tried. One whose neighbour is gone passes
changes on to it for some seconds more (`watch.CALM_S`)."""
_PAUSE_S: Final = 0.5

_log = EventLogger(__name__)


async def find_other_filers(filer: Filer, now_s: float) -> str | None:
    """Return what is wrong where the cluster, or this filer's group of it, has other filers.

    Each locks a path in its own memory, passes some changes on to another that owns the path, and
    may have a store of its own, which learns later what others have stored: then what was just
    written is not found. `now_s` is by the monotonic clock. Raises FilerError when the masters do
    not say which filers there are.
    """
    addresses = await filer.filers(deadline_s=now_s + _ASK_S)
    if len(addresses) < 2:
        return None
    return (
        f"the SeaweedFS has {len(addresses)} filers ({', '.join(sorted(addresses))}), and neither "
        "excludes the other's writers: kgw needs one without others, or in a group of its own "
        "(weed filer -filerGroup)"
    )


async def check_filers(filer: Filer, now_s: float) -> None:
    """Raise DataDirectoryError where the cluster has other filers.

    Masters that do not say are warned of: they may be out of reach for ever.
    """
    try:
        problem = await find_other_filers(filer, now_s)
    except FilerError as error:
        _log.warning("which filers there are could not be asked", reason=str(error))
        return
    if problem is not None:
        raise DataDirectoryError(problem)


def check_version(filer: Filer) -> None:
    """Raise DataDirectoryError for an open filer whose version cannot be relied on.

    What is old, or says nothing of its version, is warned of.
    """
    verdict = judge_version(filer.version)
    if verdict.is_refused:
        raise DataDirectoryError(verdict.text)
    if not verdict.is_sound:
        _log.warning("the filer is none that kgw is tried with", detail=verdict.text)


class _UnknownError(DataDirectoryError):
    """Nobody knows what the filer has done."""


async def wait_for_fence(filer: Filer, directory: str, clock: Clock) -> None:
    """Try it until changes are answered, each time with an entry of another name.

    Raises DataDirectoryError as `check_fence`: at once where the filer cannot be relied on, or
    refuses.
    """
    end_s = clock.monotonic_s() + _PATIENCE_S
    while True:
        try:
            # As long as a rule must allow: filer.toml's max_file_name_length is seen in time.
            await check_fence(filer, directory, f"fence-{uuid4().hex}".ljust(LEAST_NAME, "-"))
        except _UnknownError as error:
            next_s = clock.monotonic_s() + _PAUSE_S
            if next_s > end_s:
                raise
            _log.warning("the filer does not answer yet", reason=str(error))
            await clock.sleep_until(next_s)
        else:
            return


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
        # What may be repeated was: only a change that nobody has answered is worth another name.
        kind = _UnknownError if isinstance(error, OutcomeUnknownError) else DataDirectoryError
        raise kind(f"whether the filer refuses stale writers cannot be tested: {error}") from error


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
