"""Reads rows of the state without those that are damaged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.state.base import DamagedRowsError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kgw.state.base import Row, StateStore


async def intact_rows(
    state: StateStore, kind: str, report: Callable[[str], object]
) -> Mapping[str, Row]:
    """Return the rows of a kind that are not damaged; report which others are.

    Raises StorageError.
    """
    try:
        return await state.load(kind)
    except DamagedRowsError as error:
        report(str(error))
        return error.intact
