"""Group members of kafka-python and confluent-kafka, which keep polling between two operations.

Both libraries have blocking consumers with a heartbeat thread of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.interop.drivers.loop import Operation


def operations(
    opened: Callable[[Operation], Any],
    polled: Callable[[Any, float], list[tuple[int, int]]],
    assigned: Callable[[Any], list[int]],
    commit: Callable[[Any], None],
) -> dict[str, Callable[[Operation], Operation]]:
    """The operations on members: each is a consumer in a group, by a name of the test's own."""
    members: dict[str, Any] = {}

    def open_member(operation: Operation) -> Operation:
        members[operation["member"]] = opened(operation)
        return {}

    def poll_member(operation: Operation) -> Operation:
        consumer = members[operation["member"]]
        records = polled(consumer, operation["timeout_s"])
        return {"records": records, "assigned": sorted(assigned(consumer))}

    def commit_member(operation: Operation) -> Operation:
        commit(members[operation["member"]])
        return {}

    def close_member(operation: Operation) -> Operation:
        members.pop(operation["member"]).close()
        return {}

    return {
        "open_member": open_member,
        "poll_member": poll_member,
        "commit_member": commit_member,
        "close_member": close_member,
    }
