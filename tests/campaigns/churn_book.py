"""What the members of one group said and the gateway told of it, and what must not be there."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kgw.client.groups import GroupDetails
    from tests.campaigns.support import Report


class WrittenRecords:
    """The offsets at which records were acknowledged."""

    def __init__(self, partitions: Iterable[int]) -> None:
        self.offsets: dict[int, set[int]] = {number: set() for number in partitions}

    def take(self, partition: int, offset: int) -> list[str]:
        """Take the answer to a record; return what is wrong with it."""
        is_known = offset in self.offsets[partition]
        self.offsets[partition].add(offset)
        return (
            [f"two records of partition {partition} were given offset {offset}"] if is_known else []
        )


def what_lacks(
    details: GroupDetails,
    generations: tuple[int, int],
    partitions: Iterable[int],
    alive: Sequence[str | None],
    target: Mapping[int, int],
    stored: Mapping[int, int],
) -> str:
    """Return what a group lacks to be settled; "" when it is.

    `generations` are those before and after it was described, `alive` the instances of the
    processes of a static group, None for each of another one, `target` up to where it must commit.
    """
    if details.state != "Stable" or generations[0] != generations[1]:
        return f"{details.state} in generation {generations[0]}"
    owned = sorted(number for one in details.members for _, number in one.partitions or ())
    if owned != list(partitions):
        return f"partitions {owned} have owners"
    instances = [one for one in alive if one is not None]
    if len(set(instances)) < len(instances):
        return "two processes of one instance"
    if len(details.members) != len(alive):
        return f"{len(details.members)} members, {len(alive)} are alive"
    behind = {
        partition: offset - stored.get(partition, 0)
        for partition, offset in target.items()
        if stored.get(partition, 0) < offset
    }
    return f"behind by {behind}" if behind else ""


class GroupBook:
    """The evidence of one group. Members are heard in threads of their own."""

    def __init__(self, group: str, report: Report) -> None:
        self.group = group
        self._report = report
        self._lock = Lock()
        self._owners: dict[tuple[int, int], str] = {}
        self._read: dict[int, set[int]] = {}
        self._acknowledged: dict[int, int] = {}
        self._sent: dict[int, int] = {}
        self._refused: list[str] = []
        self._generation = 0

    def hear(self, line: Mapping[str, Any], instance: str | None) -> None:
        """Take what a member says of itself; see churn_member.py."""
        with self._lock:
            at = line["at"]
            self._report.count(f"members_{at}")
            if at == "assigned" and line["generation"] >= 0:
                owner = instance or line["member"]
                self._own(line["generation"], owner, line["partitions"], "says a member")
            elif at == "read":
                for partition, first, last in line["runs"]:
                    self._report.count("records_read", last - first + 1)
                    self._read.setdefault(partition, set()).update(range(first, last + 1))
            elif at == "committing":
                self._raise(self._sent, line["offsets"])
            elif at == "committed":
                self._raise(self._acknowledged, line["offsets"])
            elif at == "refused":
                self._refused.append(line["why"])

    def account(self, partitions: Iterable[int]) -> str:
        """Return how far members say that they came in these partitions, for a group that hangs."""
        with self._lock:
            said = [
                f"partition {one}: next to read {max(self._read.get(one, {-1})) + 1}, commit sent "
                f"{self._sent.get(one)}, acknowledged {self._acknowledged.get(one)}"
                for one in partitions
            ]
            return "; ".join([*said, f"last commits refused: {self._refused[-3:]}"])

    def acknowledged(self) -> dict[int, int]:
        """Return the highest acknowledged commit of each partition so far."""
        with self._lock:
            return dict(self._acknowledged)

    def see_generation(self, generation: int) -> None:
        """Take a generation that the gateway tells; none may be lower than one before."""
        if generation < self._generation:
            self._report.fail(
                f"{self.group}: generation went back from {self._generation} to {generation}"
            )
        self._generation = generation

    def see_members(self, generation: int, details: GroupDetails) -> None:
        """Take what DescribeGroups tells of a stable generation."""
        self._report.count("descriptions")
        with self._lock:
            for member in details.members:
                owner = member.group_instance_id or member.member_id
                partitions = [number for _, number in member.partitions or ()]
                self._own(generation, owner, partitions, "says the gateway")

    def see_offsets(self, acknowledged: Mapping[int, int], stored: Mapping[int, int]) -> None:
        """Compare OffsetFetch with the commits that were acknowledged before it was asked."""
        self._report.count("offset_checks", len(acknowledged))
        for partition, offset in acknowledged.items():
            if stored.get(partition, -1) < offset:
                self._report.fail(
                    f"{self.group}: commit lost: partition {partition} is at "
                    f"{stored.get(partition)}, {offset} was acknowledged"
                )

    def judge(self, stored: Mapping[int, int], written: Mapping[int, set[int]]) -> None:
        """Compare everything, once all members have ended and everything is read."""
        for partition, offset in stored.items():
            if offset > self._sent.get(partition, -1):
                self._report.fail(
                    f"{self.group}: commit invented: partition {partition} is at {offset}, "
                    f"nobody committed more than {self._sent.get(partition)}"
                )
        for partition, offsets in written.items():
            skipped = sorted(offsets - self._read.get(partition, set()))
            if skipped:
                self._report.fail(
                    f"{self.group}: {len(skipped)} records skipped in partition {partition}, "
                    f"the first at {skipped[0]}"
                )

    def _own(self, generation: int, owner: str, partitions: Iterable[int], who: str) -> None:
        for partition in partitions:
            self._report.count("claims")
            known = self._owners.setdefault((generation, partition), owner)
            if known != owner:
                self._report.fail(
                    f"{self.group}: two owners of partition {partition} in generation "
                    f"{generation}, {who}: {known} and {owner}"
                )

    def _raise(self, table: dict[int, int], offsets: list[tuple[int, int]]) -> None:
        for partition, offset in offsets:
            table[partition] = max(offset, table.get(partition, 0))
