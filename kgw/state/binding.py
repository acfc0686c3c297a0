"""The identity of the state in a database server, which its owner stores, too."""

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
    """Return a new random identity."""
    return urandom(16).hex()


def identity_in(rows: Mapping[str, Row]) -> str | None:
    """Return the identity among the rows of `BINDING_KIND`, or None if there is none yet."""
    row = rows.get(BINDING_KEY)
    return None if row is None else row.value.decode()


def damaged_identity(error: DamagedRowsError) -> DataDirectoryError:
    """Return the error to raise if the row with the identity is damaged."""
    return DataDirectoryError(
        f"the database's row that says whose state it is cannot be trusted: {error}"
    )


async def stored_identity(store: StateStore) -> str | None:
    """Return the identity in a store, or None if it has none yet. Raises DataDirectoryError."""
    try:
        return identity_in(await store.load(BINDING_KIND))
    except DamagedRowsError as error:
        raise damaged_identity(error) from error
