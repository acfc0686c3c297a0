"""`kgw groups explain --assignor`: who would have what if the partitions were assigned anew."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from kgw.cli.errors import CommandError
from kgw.client.groups import GroupClient
from kgw.groups.assignors import ASSIGNORS, Subscription

if TYPE_CHECKING:
    from kgw.client import AsyncClient


class Share(NamedTuple):
    """What a member has, and what it would have."""

    member_id: str
    has: tuple[tuple[str, int], ...]
    would_have: tuple[tuple[str, int], ...]

    @property
    def gains(self) -> int:
        return len(set(self.would_have) - set(self.has))

    @property
    def loses(self) -> int:
        return len(set(self.has) - set(self.would_have))

    def as_json(self) -> dict[str, Any]:
        return {
            "member_id": self.member_id,
            "has": len(self.has),
            "would_have": len(self.would_have),
            "gains": self.gains,
            "loses": self.loses,
            "partitions": [
                {"topic": topic, "partition": partition} for topic, partition in self.would_have
            ],
        }


async def what_if(client: AsyncClient, group_id: str, assignor: str) -> list[Share]:
    """Return the shares that an assignor of Kafka's would make for the members of now.

    Raises CommandError when it is not known what they read: they are no consumers, or the group is
    not stable.
    """
    details = await GroupClient(client).describe(group_id)
    members: dict[str, Subscription] = {}
    for one in details.members:
        if one.topics is None:
            raise CommandError(
                f"group {group_id} is {details.state}, of type {details.protocol_type}: "
                "only of consumers in a stable group is it known what they read"
            )
        members[one.member_id] = Subscription(frozenset(one.topics), one.partitions or ())
    counts: dict[str, int] = {one.name: len(one.partitions) for one in await client.topics()}
    assigned = ASSIGNORS[assignor](members, counts)
    return [
        Share(member_id, one.owned, tuple(assigned[member_id]))
        for member_id, one in members.items()
    ]
