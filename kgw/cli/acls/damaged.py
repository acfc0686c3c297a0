"""Damaged access rules: a server does not start with them, so they are deleted without it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from kgw.cli.shared.addresses import usable
from kgw.security.access import delete_damaged_rules, load_rules

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kgw.security.access import DamagedRule
    from kgw.state.base import StateStore


def damaged_rules(place: str) -> list[DamagedRule]:
    """Return the damaged rules of a data directory, or of a namespace of a SeaweedFS.

    Raises CommandError, ConfigError, DataDirectoryError (also while a server has the place open),
    StorageError.
    """

    async def run() -> list[DamagedRule]:
        async with _opened(place, writes=False) as state:
            return (await load_rules(state)).damaged

    with usable(place):
        return asyncio.run(run())


def delete_damaged(place: str) -> list[DamagedRule]:
    """Delete these rules and return them. Raises as `damaged_rules`."""

    async def run() -> list[DamagedRule]:
        async with _opened(place, writes=True) as state:
            return await delete_damaged_rules(state)

    with usable(place):
        return asyncio.run(run())


@asynccontextmanager
async def _opened(place: str, *, writes: bool) -> AsyncIterator[StateStore]:
    if place.startswith("seaweedmq:"):
        from kgw.backend.seaweedmq.offline.opening import opened_state as opened_namespace

        async with opened_namespace(place, writes=writes) as state:
            yield state
    else:
        from kgw.backend.embedded.offline.opening import opened_state

        async with opened_state(place) as state:
            yield state
