"""Tests whether the filer refuses stale updates, and decides alone.

Nothing else keeps a second gateway from writing to a partition. A filer that is too old to know
`expected_extended` ignores it silently, and so may a filer behind a proxy that answers in its
place; so the fence is tested at every start.
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
"""The time limit for asking the masters for the filers: a gateway may be unable to reach them, and
needs them for nothing else."""
_PATIENCE_S: Final = 16.0
"""For how long changes are repeated at a filer that does not answer them. A filer whose neighbour
is gone forwards changes to it for some seconds more (`watch.CALM_S`)."""
_PAUSE_S: Final = 0.5

_log = EventLogger(__name__)


async def find_other_filers(filer: Filer, now_s: float) -> str | None:
    """Return the problem if the cluster, or this filer's group of it, has other filers.

    Each filer locks a path in its own memory and forwards some changes to another one that owns the
    path. Each may have a store of its own, which receives the entries of the others later: then an
    entry that was just written is not found. `now_s` is by the monotonic clock. Raises FilerError
    when the masters do not say which filers there are.
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

    If the masters do not answer, a warning is logged: they may be out of reach for good.
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

    An old or unknown version is only warned about.
    """
    verdict = judge_version(filer.version)
    if verdict.is_refused:
        raise DataDirectoryError(verdict.text)
    if not verdict.is_sound:
        _log.warning("the filer is none that kgw is tried with", detail=verdict.text)


class _UnknownError(DataDirectoryError):
    """It is unknown whether the filer has made the change."""


async def wait_for_fence(filer: Filer, directory: str, clock: Clock) -> None:
    """Repeat the test until changes are answered, each time with another entry name.

    Raises DataDirectoryError as `check_fence`: at once if the filer cannot be relied on, or refuses
    a change.
    """
    end_s = clock.monotonic_s() + _PATIENCE_S
    while True:
        try:
            # The longest name that a rule must allow: so a limit in filer.toml's
            # max_file_name_length shows here.
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
    """Test with an entry of this name, which no one else uses, and remove it again.

    Raises DataDirectoryError when the filer cannot be relied on, or the outcome is unknown.
    """
    try:
        try:
            await _try(filer, directory, name)
        finally:
            await filer.delete(directory, name)
    except DataDirectoryError:
        raise
    except StorageError as error:
        # Repeatable calls were repeated already: only an unanswered change is worth another name.
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
