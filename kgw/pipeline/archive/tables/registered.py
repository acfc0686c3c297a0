"""Lists the tables that an archive publishes: `_tables/<kind>.json`, each written once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.pipeline.archive.durable import create
from kgw.pipeline.archive.errors import ArchiveError

if TYPE_CHECKING:
    from pathlib import Path

KINDS: Final = ("delta", "iceberg")
_FORMAT: Final = 1


class TableSettings(NamedTuple):
    """A table that an archive publishes."""

    # The field names are stored: renaming a field changes the stored form.
    kind: str
    """`delta` or `iceberg`."""
    catalog: str | None = None
    """The name of an Iceberg table's catalog in the settings of pyiceberg; None for the catalog in
    the archive."""


def register(generation: Path, settings: TableSettings) -> None:
    """Make an archive publish a table after each further commit.

    Raises ArchiveError for invalid settings, and if the table is published with other settings.
    """
    if settings.kind not in KINDS:
        raise ArchiveError(f"unknown kind of table {settings.kind!r}; there is {', '.join(KINDS)}")
    if settings.catalog is not None and settings.kind != "iceberg":
        raise ArchiveError(
            f"a {settings.kind} table is in no catalog; {settings.catalog} was named"
        )
    path = generation / "_tables" / f"{settings.kind}.json"
    if not path.exists():
        value = {"format": _FORMAT, **settings._asdict()}
        try:
            create(path, json.dumps(value).encode())
            return
        except FileExistsError:
            pass  # another archiver has written it
    before = _read(path)
    if before != settings:
        raise ArchiveError(
            f"{generation} publishes its {settings.kind} table in {_place(before)}, not in "
            f"{_place(settings)}; remove {path} to publish another one"
        )


def registered(generation: Path) -> list[TableSettings]:
    """Return the tables that an archive publishes. Raises ArchiveError for an unknown kind."""
    return [_read(path) for path in sorted((generation / "_tables").glob("[!.]*.json"))]


def _read(path: Path) -> TableSettings:
    try:
        value = json.loads(path.read_bytes())
        settings = TableSettings(str(value["kind"]), value["catalog"])
        is_known = value["format"] == _FORMAT and settings.kind in KINDS
    except (KeyError, TypeError, ValueError) as error:
        raise ArchiveError(f"{path} is damaged: {error!r}") from error
    if not is_known:
        raise ArchiveError(f"{path} names a table that this version cannot publish")
    return settings


def _place(settings: TableSettings) -> str:
    return "the archive" if settings.catalog is None else f"catalog {settings.catalog}"
