"""The gateway with a bug in its groups, planted on purpose: the control of the group campaigns.

`python -m tests.campaigns.broken_groups_serve BUG serve ...`
"""

from __future__ import annotations

import asyncio
import sys
import time
from struct import pack
from typing import TYPE_CHECKING, Any

from kgw.cli.main import main
from kgw.coordinator.entry import Reply
from kgw.errors import ErrorCode
from kgw.groups.classic import ClassicGroup
from kgw.groups.coordinator import GroupCoordinator
from kgw.offsets.block import OffsetBlock
from kgw.state.write_queue import CommitQueue, WriteQueue

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.groups.requests import CommitRequest
    from kgw.offsets.topic_offsets import TopicChange

HASTE_S = 0.3
BLOCKED_S = 0.01
LOOKS = 60
LEAK_BYTES = 4_096
TOO_FAR = 2


def plant(owner: object, name: str, bug: Callable[..., Any]) -> None:
    """Put a bug in place of a method, for as long as the process lives."""
    setattr(owner, name, bug)


def everybody_gets_everything() -> None:
    """Give each member the longest part of the assignment: two owners."""
    assign = ClassicGroup._assign

    def broken(self: ClassicGroup, assignments: Any) -> None:
        longest = max(assignments.values(), key=len, default=b"")
        assign(self, dict.fromkeys(assignments, longest))

    plant(ClassicGroup, "_assign", broken)


def commits_too_far() -> None:
    """Store offsets that are two too high, single ones and blocks alike: records are skipped."""
    commit = GroupCoordinator.commit

    def broken(self: GroupCoordinator, group_id: str, request: CommitRequest) -> Reply[ErrorCode]:
        far = {topic_id: farther(change) for topic_id, change in request.offsets.items()}
        return commit(self, group_id, request._replace(offsets=far))

    plant(GroupCoordinator, "commit", broken)


def farther(change: TopicChange) -> TopicChange:
    """Return a change whose offsets are two higher."""
    if not isinstance(change, OffsetBlock):
        return {
            partition: one and one._replace(offset=one.offset + TOO_FAR)
            for partition, one in (change or {}).items()
        }
    block = change
    offsets = [offset + TOO_FAR for offset in block.offset_numbers()]
    return OffsetBlock(
        block.partitions,
        pack(f">{len(block)}q", *offsets),
        block.leader_epochs,
        block.metadata,
        block.commit_ms,
        block.retention_ms,
        block.committed_s,
    )


def answers_first() -> None:
    """Answer commits before they are stored, and store a little later: a kill loses some."""
    run = WriteQueue._run
    commit: Callable[..., Any] = GroupCoordinator.commit

    async def late(self: WriteQueue[Any]) -> None:
        if not isinstance(self, CommitQueue):  # the state store below is as fast as ever
            await asyncio.sleep(HASTE_S)
        await run(self)

    def broken(self: GroupCoordinator, *who: Any) -> Any:
        answer = commit(self, *who)
        if answer.is_done:
            return answer
        early: Reply[ErrorCode] = Reply(lambda error: error)
        early.set_result(ErrorCode.NONE)
        return early

    plant(WriteQueue, "_run", late)
    plant(GroupCoordinator, "commit", broken)


def nobody_expires() -> None:
    """Keep dead members: rounds wait for them."""
    plant(ClassicGroup, "_expire", lambda _: None)


def forgets_members() -> None:
    """Store groups without who is in them: a restart disturbs everybody."""
    row = ClassicGroup.row
    plant(ClassicGroup, "row", lambda self: row(self)._replace(members=()))


def generations_skip() -> None:
    """Give out every second generation only."""
    complete = ClassicGroup._complete

    def broken(self: ClassicGroup) -> None:
        self.generation += 1
        complete(self)

    plant(ClassicGroup, "_complete", broken)


def quadratic_rounds() -> None:
    """Look at every member many times over whenever one joins a group that has formed."""
    join: Callable[..., Any] = ClassicGroup._join

    def broken(self: ClassicGroup, *what: Any) -> Any:
        looks = LOOKS if self.generation > 1 else 0
        sum(one.said.session_timeout_ms for one in self.members.all for _ in range(looks))
        return join(self, *what)

    plant(ClassicGroup, "_join", broken)


def blocking_syncs() -> None:
    """Hold everybody up for 10 ms with each assignment."""
    assign = ClassicGroup._assign

    def broken(self: ClassicGroup, assignments: Any) -> None:
        time.sleep(BLOCKED_S)
        assign(self, assignments)

    plant(ClassicGroup, "_assign", broken)


def blocking_heartbeats() -> None:
    """Hold everybody up for 10 ms with each heartbeat."""
    heartbeat: Callable[..., Any] = ClassicGroup._heartbeat

    def broken(self: ClassicGroup, *who: Any) -> Any:
        time.sleep(BLOCKED_S)
        return heartbeat(self, *who)

    plant(ClassicGroup, "_heartbeat", broken)


def heartbeats_leak() -> None:
    """Keep 4 KB of every heartbeat."""
    heartbeat: Callable[..., Any] = ClassicGroup._heartbeat
    kept: list[bytes] = []

    def broken(self: ClassicGroup, *who: Any) -> Any:
        kept.append(b"x" * LEAK_BYTES)
        return heartbeat(self, *who)

    plant(ClassicGroup, "_heartbeat", broken)


BUGS: dict[str, Callable[[], None]] = {
    "everybody-gets-everything": everybody_gets_everything,
    "commits-too-far": commits_too_far,
    "answers-first": answers_first,
    "nobody-expires": nobody_expires,
    "forgets-members": forgets_members,
    "generations-skip": generations_skip,
    "quadratic-rounds": quadratic_rounds,
    "blocking-syncs": blocking_syncs,
    "blocking-heartbeats": blocking_heartbeats,
    "heartbeats-leak": heartbeats_leak,
}


def command(bug: str) -> tuple[str, ...]:
    """Return what to run instead of `kgw serve`."""
    return (sys.executable, "-m", "tests.campaigns.broken_groups_serve", bug, "serve")


if __name__ == "__main__":
    BUGS[sys.argv.pop(1)]()
    main(prog_name="kgw")
