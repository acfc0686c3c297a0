"""The gateway with a bug in how it writes to SeaweedFS.

The controls of `seaweedmq_faults`: `python -m tests.campaigns.broken_seaweedmq_serve BUG serve …`.
`deaf` is none of them: it is the gateway that never believes that it has been replaced, so that the
filer alone keeps it from writing.
"""

from __future__ import annotations

import asyncio
import sys
from enum import StrEnum
from typing import TYPE_CHECKING

from kgw.backend.seaweedmq.chain.marks import CHANGES, EPOCH
from kgw.backend.seaweedmq.chain.settling import NotStoredError
from kgw.backend.seaweedmq.channel.channel import FilerChannel
from kgw.backend.seaweedmq.filer import OutcomeUnknownError
from kgw.backend.seaweedmq.lease.lease import FilerLease
from kgw.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kgw.backend.seaweedmq.filer import FilerEntry

ANSWERED_BEFORE_S = 0.4


class Bug(StrEnum):
    """What is wrong."""

    DEAF = "deaf"
    NO_EPOCH = "no-epoch"
    """It, too, never believes that it has been replaced; and the filer is not asked to refuse."""
    NO_CHANGES = "no-changes"
    ANSWERS_FIRST = "answers-first"
    DOUBT_IS_FAILURE = "doubt-is-failure"


def command(bug: Bug, *arguments: str) -> tuple[str, ...]:
    """Return what to run."""
    module = "tests.campaigns.broken_seaweedmq_serve"
    return (sys.executable, "-m", module, bug.value, "serve", *arguments)


_update = FilerChannel.update


def without(attribute: str) -> Callable[..., object]:
    """Return an update that leaves a part of its condition out."""

    async def update(
        self: FilerChannel,
        directory: str,
        entry: FilerEntry,
        expected: Mapping[str, bytes],
        *,
        deadline_s: float | None = None,
    ) -> None:
        others = {name: value for name, value in expected.items() if name != attribute}
        await _update(self, directory, entry, others, deadline_s=deadline_s)

    return update


def _is_of_records(directory: str, entry: FilerEntry) -> bool:
    """Whether it is a file of a partition, and neither the state nor the lease."""
    return bool(entry.chunks) and not directory.startswith("/topics/.")


_under_way: set[asyncio.Task[None]] = set()


async def update_later(
    self: FilerChannel,
    directory: str,
    entry: FilerEntry,
    expected: Mapping[str, bytes],
    *,
    deadline_s: float | None = None,
) -> None:
    """Say that a change of records is made, and make it a little later."""
    if not _is_of_records(directory, entry):
        await _update(self, directory, entry, expected, deadline_s=deadline_s)
        return

    before = [*_under_way]

    async def update() -> None:
        await asyncio.sleep(ANSWERED_BEFORE_S)
        if before:
            await asyncio.wait(before)
        await _update(self, directory, entry, expected)

    task = asyncio.ensure_future(update())
    _under_way.add(task)
    task.add_done_callback(_under_way.discard)


async def update_hastily(
    self: FilerChannel,
    directory: str,
    entry: FilerEntry,
    expected: Mapping[str, bytes],
    *,
    deadline_s: float | None = None,
) -> None:
    """Take an answer that does not come for a failure."""
    try:
        await _update(self, directory, entry, expected, deadline_s=deadline_s)
    except OutcomeUnknownError as error:
        if not _is_of_records(directory, entry):
            raise
        raise NotStoredError(f"it failed, it seems: {error}") from error


def be_deaf() -> None:
    """Never hear that the lease is over."""

    def hear_nothing(self: FilerLease) -> None:
        pass

    FilerLease._lost = FilerLease._unconfirmed = hear_nothing  # type: ignore[method-assign]


def plant(bug: Bug) -> None:
    """Make this process's gateway a broken one."""
    updates = {
        Bug.NO_EPOCH: without(EPOCH),
        Bug.NO_CHANGES: without(CHANGES),
        Bug.ANSWERS_FIRST: update_later,
        Bug.DOUBT_IS_FAILURE: update_hastily,
    }
    if bug in {Bug.DEAF, Bug.NO_EPOCH}:
        be_deaf()
    if bug in updates:
        FilerChannel.update = updates[bug]  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    plant(Bug(sys.argv.pop(1)))
    main(prog_name="kgw")
