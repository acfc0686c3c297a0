"""The topic setting kgw.loading: while a job loads a topic, it keeps other producers out.

The server stores the setting, so that a job that was killed can be continued.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from kgw.client import AdminClient
from kgw.client.admin import TOPIC
from kgw.pipeline.archive.errors import ArchiveError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path
    from uuid import UUID

    from kgw.client import TopicSettingValue
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
        """The topic id of the archive."""

    @property
    def target(self) -> str:
        """The name of the topic that is loaded."""

    @property
    def loader(self) -> str:
        """The common prefix of the job's transactional ids."""

    @property
    def keeps_offsets(self) -> bool:
        """Whether the job writes batches with their original offsets."""


class LoadProgress(NamedTuple):
    """The progress of one partition, in offsets of the archive; `end` is exclusive."""

    partition: int
    start: int
    position: int
    end: int


class HandOff(NamedTuple):
    """The first offset after the loaded records of a partition."""

    partition: int
    offset: int


def settings_of(wire: WireClient, topic: str) -> dict[str, str]:
    """Return the settings of a topic that have a value. Raises ClientError.

    If the gateway does not know the topic yet, it is asked again: the topic may be new.
    """
    admin = AdminClient(wire.client)
    return _settings(wire.call(wire.client.retrying(lambda: admin.describe_settings(TOPIC, topic))))


def settings_at_once(wire: WireClient, topic: str) -> dict[str, str]:
    """Return the settings of a topic that is not new.

    Raises ClientError at once if the topic does not exist.
    """
    return _settings(wire.call(AdminClient(wire.client).describe_settings(TOPIC, topic)))


def _settings(rows: Iterable[TopicSettingValue]) -> dict[str, str]:
    return {row.name: row.value for row in rows if row.value is not None}


def is_compacted(settings: dict[str, str]) -> bool:
    """Return whether compaction may remove records of a topic with these settings."""
    return "compact" in settings.get("cleanup.policy", "")


def is_loading(settings: dict[str, str], job: LoadingJob) -> bool:
    """Return whether this job is loading the topic; False if no job is.

    Raises ArchiveError if another job is.
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
    """Keep all other producers out of the topic from now on. Raises ArchiveError, ClientError."""
    settings = settings_of(wire, job.target)
    if LOADER_SETTING not in settings:
        raise ArchiveError(
            f"the server has no setting {LOADER_SETTING}: without it nothing keeps other producers "
            f"out of topic {job.target}"
        )
    if not is_loading(settings, job):
        offsets = "original" if job.keeps_offsets else None
        _set(wire, job.target, {LOADER_SETTING: job.loader, OFFSETS_SETTING: offsets})


def hand_over(wire: WireClient, job: LoadingJob, standing: Sequence[LoadProgress]) -> list[HandOff]:
    """Let other producers write again; return the first offset after the loaded records.

    `standing` is the progress of all partitions. Raises ArchiveError if some records are not
    written yet, or if another job or no job loads the topic; ClientError.
    """
    for one in standing:
        if one.position < one.end:
            raise ArchiveError(
                f"topic {job.target} partition {one.partition}: offsets {one.position} to "
                f"{one.end - 1} of the archive are not written yet"
            )
    partitions = [one.partition for one in standing]
    # Read the ends while other producers are still kept out: later they may include other records.
    bounds = wire.bounds(job.target, partitions) if partitions else {}
    if not abandon(wire, job):
        raise ArchiveError(
            f"all of the archive is in topic {job.target}, but {LOADER_SETTING} was taken away "
            "before: what others have written may stand between"
        )
    return [HandOff(partition, bounds[partition].latest) for partition in partitions]


def abandon(wire: WireClient, job: LoadingJob) -> bool:
    """Let other producers write again, even if records are missing.

    Return whether the topic was being loaded.

    Raises ArchiveError if another job loads the topic; ClientError.
    """
    if not is_loading(settings_of(wire, job.target), job):
        return False
    # Keep `kgw.loading.offsets`: with it, the server refuses late batches of a paused attempt.
    _set(wire, job.target, {LOADER_SETTING: None})
    return True


def _set(wire: WireClient, topic: str, changes: dict[str, str | None]) -> None:
    admin = AdminClient(wire.client)
    wire.call(wire.client.retrying(lambda: admin.alter_settings(TOPIC, topic, changes)))
