"""Reads rows of the state without those that are damaged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.state.base import DamagedRowsError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kgw.logs import EventLogger
    from kgw.state.base import Row, StateStore


async def intact_rows(
    state: StateStore, kind: str, log: EventLogger, event: str
) -> Mapping[str, Row]:
    """Return the rows of a kind that are not damaged; log the event if others are.

    Raises StorageError.
    """
    try:
        return await state.load(kind)
    except DamagedRowsError as error:
        log.error(event, why=str(error))
        return error.intact
