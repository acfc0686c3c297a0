"""Group members of kafka-python and confluent-kafka, which keep polling between two operations.

Both libraries have blocking consumers with a heartbeat thread of their own.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.interop.drivers.loop import Operation


def operations(
    opened: Callable[[Operation], Any],
    polled: Callable[[Any, float], list[tuple[int, int]]],
    assigned: Callable[[Any], list[int]],
    commit: Callable[[Any], None],
    members: dict[str, Any],
) -> dict[str, Callable[[Operation], Operation]]:
    """The operations on members: each is a consumer in a group, by a name of the test's own.

    `members` is where they are kept, for others to find them.
    """
    threads = ThreadPoolExecutor(8)

    def open_member(operation: Operation) -> Operation:
        members[operation["member"]] = opened(operation)
        return {}

    def poll_member(name: str, timeout_s: float) -> Operation:
        consumer = members[name]
        records = polled(consumer, timeout_s)
        return {"records": records, "assigned": sorted(assigned(consumer))}

    def poll_members(operation: Operation) -> Operation:
        # At the same time: kafka-python 3.0 begins to join anew at each poll whose time is too
        # short for a round, and one member's round waits for the other's poll.
        names = operation["members"]
        timeouts = [operation["timeout_s"]] * len(names)
        return {"members": dict(zip(names, threads.map(poll_member, names, timeouts), strict=True))}

    def commit_member(operation: Operation) -> Operation:
        commit(members[operation["member"]])
        return {}

    def close_member(operation: Operation) -> Operation:
        members.pop(operation["member"]).close()
        return {}

    return {
        "open_member": open_member,
        "poll_members": poll_members,
        "commit_member": commit_member,
        "close_member": close_member,
    }
