"""Who writes to a topic while a job loads it: kgw.loading, from the job's beginning to its end.

The setting is on the server, so that a job that was killed finds it there, and goes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from kgw.client import AdminClient
from kgw.client.admin import TOPIC
from kgw.pipeline.archive.errors import ArchiveError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from uuid import UUID

    from kgw.pipeline.wire import WireClient

LOADER_SETTING: Final = "kgw.loading"
OFFSETS_SETTING: Final = "kgw.loading.offsets"


class LoadingJob(Protocol):
    """A job that loads a topic."""

    @property
    def generation(self) -> Path:
        """The directory of the archive."""

    @property
    def topic_id(self) -> UUID:
        """Of the archive."""

    @property
    def target(self) -> str:
        """The topic."""

    @property
    def loader(self) -> str:
        """What the job's transactional ids begin with."""

    @property
    def keeps_offsets(self) -> bool:
        """Whether its batches come with offsets of their own."""


class Standing(NamedTuple):
    """How far a partition is. Offsets are the archive's, ends are exclusive."""

    partition: int
    start: int
    position: int
    end: int


class HandOff(NamedTuple):
    """Where a partition goes on with what others write."""

    partition: int
    offset: int


def settings_of(wire: WireClient, topic: str) -> dict[str, str]:
    """Return a topic's settings; what has no value is left out. Raises ClientError."""
    admin = AdminClient(wire.client)
    rows = wire.call(wire.client.retrying(lambda: admin.describe_settings(TOPIC, topic)))
    return {row.name: row.value for row in rows if row.value is not None}


def is_loading(settings: dict[str, str], job: LoadingJob) -> bool:
    """Return whether this job loads the topic with these settings; False where nobody does.

    Raises ArchiveError when another one does.
    """
    loader = settings.get(LOADER_SETTING, "")
    if not loader:
        return False
    keeps_offsets = settings.get(OFFSETS_SETTING) == "original"
    if (loader, keeps_offsets) != (job.loader, job.keeps_offsets):
        how = "with original offsets" if keeps_offsets else "with new offsets"
        raise ArchiveError(
            f"topic {job.target} is being loaded by another job, {how}: {LOADER_SETTING}={loader}"
        )
    return True


def begin(wire: WireClient, job: LoadingJob) -> None:
    """Let nobody but the job write from now on. Raises ArchiveError, ClientError."""
    settings = settings_of(wire, job.target)
    if LOADER_SETTING not in settings:
        raise ArchiveError(
            f"the server has no setting {LOADER_SETTING}: without it nothing keeps other producers "
            f"out of topic {job.target}"
        )
    if not is_loading(settings, job):
        offsets = "original" if job.keeps_offsets else None
        _set(wire, job.target, {LOADER_SETTING: job.loader, OFFSETS_SETTING: offsets})


def hand_over(wire: WireClient, job: LoadingJob, standing: Sequence[Standing]) -> list[HandOff]:
    """Let everybody write, and return from where. `standing` is the job's plan, with nothing left.

    Raises ArchiveError when something is left, when another job loads the topic, or none does any
    more; ClientError.
    """
    for one in standing:
        if one.position < one.end:
            raise ArchiveError(
                f"topic {job.target} partition {one.partition}: offsets {one.position} to "
                f"{one.end - 1} of the archive are not written yet"
            )
    partitions = [one.partition for one in standing]
    # Asked for while the job alone writes: afterwards it may be another one's offset.
    bounds = wire.bounds(job.target, partitions) if partitions else {}
    if not abandon(wire, job):
        raise ArchiveError(
            f"all of the archive is in topic {job.target}, but {LOADER_SETTING} was taken away "
            "before: what others have written may stand between"
        )
    return [HandOff(partition, bounds[partition].latest) for partition in partitions]


def abandon(wire: WireClient, job: LoadingJob) -> bool:
    """Let everybody write, whatever is written; return whether that changed anything.

    Raises ArchiveError when another job loads the topic; ClientError.
    """
    if not is_loading(settings_of(wire, job.target), job):
        return False
    # The other setting stays: it keeps out what an attempt sends that has slept meanwhile.
    _set(wire, job.target, {LOADER_SETTING: None})
    return True


def _set(wire: WireClient, topic: str, changes: dict[str, str | None]) -> None:
    admin = AdminClient(wire.client)
    wire.call(wire.client.retrying(lambda: admin.alter_settings(TOPIC, topic, changes)))
