"""The group that stores an archive's position, and the setting that makes retention wait for it.

A group belongs to one archive: the metadata of each committed offset identifies the archive, and no
other archive overwrites it. Otherwise another archive's offsets would let retention remove records
that this archive does not have yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kgw.client import AdminClient, GroupClient
from kgw.client.admin import TOPIC
from kgw.pipeline.archive.errors import ArchiveError
from kgw.pipeline.jobs.loading import settings_at_once

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from uuid import UUID

    from kgw.client.groups import GroupOffset
    from kgw.pipeline.archive.commit_log import CommitLog
    from kgw.pipeline.archive.coverage import Coverage
    from kgw.pipeline.wire import WireClient

DEFAULT_GROUP: Final = "kgw-archive"
HOLD_SETTING: Final = "kgw.archive.hold"
_MARK: Final = "kgw-archive"


def identity(topic_id: UUID, log: CommitLog) -> str | None:
    """Return the metadata that an archive commits with offsets; None before its first commit.

    It has the random id of the log's first entry, which only copies of the archive share.
    """
    first = log.entry(1)
    return None if first is None else f"{_MARK} {topic_id} {first.id}"


def find_stranger(
    identity: str | None,
    topic: str,
    topic_id: UUID,
    coverage: Coverage,
    offsets: Mapping[tuple[str, int], GroupOffset],
) -> str | None:
    """Return why an archive must not commit to a group; None if it may. Pure.

    It may overwrite its own offsets, offsets of an archive of the same topic name with another
    topic id, and offsets without this metadata that equal the archive's position, as older releases
    committed.
    """
    for (name, partition), committed in offsets.items():
        if name != topic or committed.metadata == identity:
            continue
        where = f"topic {topic} partition {partition}"
        mark, _, named = committed.metadata.partition(" ")
        if mark == _MARK:
            of_topic, _, archive = named.partition(" ")
            if of_topic == str(topic_id):
                ours = "has not begun" if identity is None else f"is {identity.rpartition(' ')[2]}"
                return f"{where} is committed by archive {archive}, and this one {ours}"
            continue
        known = coverage.partitions.get(partition)
        if known is None or known.next != committed.offset:
            stands = "has nothing" if known is None else f"goes to offset {known.next - 1}"
            return (
                f"{where} is committed at offset {committed.offset} by nobody who is known, and "
                f"this archive {stands}"
            )
    return None


class ArchiveGroup:
    """Commits the positions of archives to a group. Every method raises ClientError."""

    def __init__(
        self, wire: WireClient, group: str, *, is_held: bool, tell: Callable[[str], None]
    ) -> None:
        """If `is_held`, offsets of another archive in the group raise ArchiveError.

        Otherwise `tell` is called with a message, once for each topic.
        """
        self._wire = wire
        self._group = group
        self._is_held = is_held
        self._tell = tell
        self._told: dict[tuple[UUID, int], int] = {}
        """The offsets that this archive has committed to the group."""
        self._left: set[UUID] = set()

    def hold(self, topic: str, topic_id: UUID, log: CommitLog) -> None:
        """Make the server keep unarchived records of a topic, by the offsets of the group.

        Raises ArchiveError if another archive uses the group or if the server lacks the setting.
        """
        self._may_move(topic, topic_id, log, log.read().coverage)
        hold(self._wire, topic, self._group)

    def commit(self, topic: str, topic_id: UUID, log: CommitLog, coverage: Coverage) -> None:
        """Commit the positions that have changed since the last call.

        Raises ArchiveError if another archive uses the group that holds records.
        """
        news = {
            partition: one.next
            for partition, one in coverage.partitions.items()
            if self._told.get((topic_id, partition)) != one.next
        }
        if not news or not self._may_move(topic, topic_id, log, coverage):
            return
        mark = identity(topic_id, log) or ""
        positions = {(topic, partition): end for partition, end in news.items()}
        marks = dict.fromkeys(positions, mark)
        client, groups = self._wire.client, GroupClient(self._wire.client)
        # Retry without a limit, so that a restart of the gateway does not end the run.
        self._wire.call(client.retrying(lambda: groups.commit(self._group, positions, marks)))
        self._told |= {(topic_id, partition): end for partition, end in news.items()}

    def _may_move(self, topic: str, topic_id: UUID, log: CommitLog, coverage: Coverage) -> bool:
        if topic_id in self._left:
            return False
        client, groups = self._wire.client, GroupClient(self._wire.client)
        # Read them at every call: another archive may have begun to use the group.
        offsets = self._wire.call(client.retrying(lambda: groups.offsets(self._group)))
        why = find_stranger(identity(topic_id, log), topic, topic_id, coverage, offsets)
        if why is None:
            return True
        if self._is_held:
            raise ArchiveError(
                f"group {self._group} is not this archive's: {why}; give this archive another "
                "group (--group NAME), or take this one over: "
                f"`kgw groups delete-offsets {self._group} --topic {topic}`"
            )
        self._left.add(topic_id)
        self._tell(
            f"Group {self._group} is not told how far this archive goes: {why}. With a group of "
            "its own (--group NAME) it is."
        )
        return False


def hold(wire: WireClient, topic: str, group: str) -> None:
    """Name an archive's group in `kgw.archive.hold`, so that retention keeps unarchived records.

    Raises ArchiveError for a server without this setting, ClientError.
    """
    held = settings_at_once(wire, topic).get(HOLD_SETTING)
    if held is None:
        raise ArchiveError(
            f"the server has no setting {HOLD_SETTING}, so that retention may remove what is not "
            "archived yet; archive without a hold to accept that"
        )
    if group not in held.split(","):
        admin = AdminClient(wire.client)
        wire.call(admin.append_setting(TOPIC, topic, HOLD_SETTING, group))
