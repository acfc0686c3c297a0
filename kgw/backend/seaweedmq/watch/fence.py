"""Tests whether the filer refuses stale updates, and is the only filer.

Only conditional updates prevent a second gateway from writing to a partition. A filer that is too
old for `expected_extended` ignores it silently, and so may a proxy. So this is tested at every
start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import uuid4

from kgw.backend.seaweedmq.filer import (
    ConditionFailedError,
    EntryExistsError,
    FilerEntry,
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
"""The time limit for asking the masters which filers there are. It is short because a gateway may
be unable to reach the masters."""
_PATIENCE_S: Final = 16.0
"""How long unanswered changes are repeated. If another filer has stopped, this filer still forwards
changes to it for some seconds (`watch.CALM_S`)."""
_PAUSE_S: Final = 0.5

_log = EventLogger(__name__)


async def find_other_filers(filer: Filer, now_s: float) -> str | None:
    """Return a problem if the cluster, or this filer's group, has other filers.

    Each filer locks paths in its own memory, and forwards some changes to the filer that owns the
    path. If filers have separate stores, entries are copied later, so a new entry may not be found.
    `now_s` is by the monotonic clock. Raises FilerError if the masters do not list the filers.
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
    """Raise DataDirectoryError if the cluster has other filers.

    If the masters do not answer, only a warning is logged, because they may be unreachable
    permanently.
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

    For other old or unknown versions, only a warning is logged.
    """
    verdict = judge_version(filer.version)
    if verdict.is_refused:
        raise DataDirectoryError(verdict.text)
    if not verdict.is_sound:
        _log.warning("the filer is none that kgw is tried with", detail=verdict.text)


class _UnknownError(DataDirectoryError):
    """It is unknown whether the filer has made the change."""


async def wait_for_fence(filer: Filer, directory: str, clock: Clock) -> None:
    """Repeat the test with new entry names until the filer answers changes.

    Raises DataDirectoryError as `check_fence`, immediately if the filer is unreliable or refuses a
    change.
    """
    end_s = clock.monotonic_s() + _PATIENCE_S
    while True:
        try:
            # Use the longest name that must be allowed, to find a too small max_file_name_length in
            # filer.toml.
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
    """Test the filer with an entry of this unused name, and remove the entry.

    Raises DataDirectoryError if the filer is unreliable, or the outcome is unknown.
    """
    try:
        try:
            await _try(filer, directory, name)
        finally:
            await filer.delete(directory, name)
    except DataDirectoryError:
        raise
    except StorageError as error:
        # Only an unanswered change needs another test; other calls were repeated already.
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


def _entry(name: str, value: bytes) -> FilerEntry:
    return FilerEntry(name, content=value, extended={_ATTRIBUTE: value})
