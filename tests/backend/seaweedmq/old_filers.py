"""Filers that do not obey what a fence rests on, as SeaweedFS before it knew conditions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.testing.filer import MemoryFiler

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kgw.backend.seaweedmq.filer import FilerEntry


class WithoutConditions(MemoryFiler):
    """A filer that updates an entry whatever the condition says."""

    async def update(
        self,
        directory: str,
        entry: FilerEntry,
        expected: Mapping[str, bytes],
        *,
        deadline_s: float | None = None,
    ) -> None:
        await self.put(directory, entry, deadline_s=deadline_s)


class WithoutExclusion(MemoryFiler):
    """A filer that creates an entry that is there already."""

    async def create(
        self, directory: str, entry: FilerEntry, *, deadline_s: float | None = None
    ) -> None:
        await self.put(directory, entry, deadline_s=deadline_s)
