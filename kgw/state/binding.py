"""Whose state a store on a database server has: an identity that both sides know."""

from __future__ import annotations

from os import urandom
from typing import TYPE_CHECKING, Final

from kgw.errors import DataDirectoryError
from kgw.state.base import DamagedRowsError
from kgw.state.kinds import BINDING_KIND

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kgw.state.base import Row, StateStore

BINDING_KEY: Final = "identity"


def new_identity() -> str:
    """Return what nothing else has."""
    return urandom(16).hex()


def identity_in(rows: Mapping[str, Row]) -> str | None:
    """Return the identity among the rows of `BINDING_KIND`, None for none yet."""
    row = rows.get(BINDING_KEY)
    return None if row is None else row.value.decode()


def damaged_identity(error: DamagedRowsError) -> DataDirectoryError:
    """Return what to raise where the row with the identity is damaged."""
    return DataDirectoryError(
        f"the database's row that says whose state it is cannot be trusted: {error}"
    )


async def stored_identity(store: StateStore) -> str | None:
    """Return whose state a store has, None for nobody's yet. Raises DataDirectoryError."""
    try:
        return identity_in(await store.load(BINDING_KIND))
    except DamagedRowsError as error:
        raise damaged_identity(error) from error
