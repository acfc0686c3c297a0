"""Options that the archive commands share: directory, topics, topic ids and tables."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kgw.cli.shared.client import topics_option
from kgw.cli.shared.errors import CommandError
from kgw.cli.shared.output import note
from kgw.cli.shared.settings import duration_option, parsed
from kgw.pipeline.archive.archived_topics import ArchivedTopic, archived_topic_ids, archived_topics
from kgw.pipeline.archive.sweeping import sweep
from kgw.pipeline.archive.tables import KINDS, TableSettings, publish

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any
    from uuid import UUID


def archive_option(
    name: str = "root", *, is_required: bool = True, what: str = "The archive."
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return an option `--archive DIR` for an existing directory, with the given parameter name."""
    return click.option(
        "--archive",
        name,
        required=is_required,
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        # Make the path absolute: tasks of a cluster have other working directories.
        callback=parsed(Path.absolute),
        metavar="DIR",
        help=what,
    )


def new_archive(text: str) -> Path:
    """Return the path for a new archive. Raises ValueError if it is not a local directory."""
    if not text or "://" in text:
        raise ValueError(f"an archive is a local directory: {text!r}")
    return Path(text)


topic_id_option = click.option(
    "--topic-id",
    "topic_id",
    type=click.UUID,
    metavar="UUID",
    help="Which life of the topic, where the archive has several.",
)


only_topics_option = topics_option(metavar="TOPIC", help="Only this topic.")
grace_option = duration_option(
    "--grace",
    "grace_ms",
    default="PT24H",
    help="Remove files that were replaced so long ago: who began to read before may need them.",
)


def table_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--table` and `--catalog` to a command, as `kinds` and `catalog`."""
    with_catalog = click.option(
        "--catalog",
        metavar="NAME",
        help="With --table iceberg: the catalog, by its name in the settings of pyiceberg. "
        "Default: one in the archive.",
    )(command)
    return click.option(
        "--table",
        "kinds",
        multiple=True,
        type=click.Choice(KINDS),
        help="Publish a table of this kind over the files, from now on; the archive remembers it. "
        "Needs the extra delta or iceberg.",
    )(with_catalog)


def chosen_tables(kinds: tuple[str, ...], catalog: str | None) -> tuple[TableSettings, ...]:
    """Return the tables that the options of `table_options` describe. Raises UsageError."""
    if catalog is not None and "iceberg" not in kinds:
        raise click.UsageError("--catalog is for --table iceberg")
    return tuple(
        TableSettings(kind, catalog if kind == "iceberg" else None) for kind in dict.fromkeys(kinds)
    )


def topic_as_json(archived: ArchivedTopic) -> dict[str, Any]:
    """Return the name and id of an archived topic, for JSON."""
    return {"topic": archived.topic, "topic_id": str(archived.topic_id)}


def chosen_topics(root: Path, asked: tuple[str, ...]) -> list[str]:
    """Return the given topics, or all topics of an archive. Raises CommandError."""
    known = archived_topics(root)
    if not known:
        raise CommandError(f"{root} is no archive: it has no commit log")
    if unknown := [name for name in asked if name not in known]:
        raise CommandError(f"{root} has no archive of {', '.join(unknown)}")
    return list(asked) or known


def chosen_life(root: Path, topic: str, topic_id: UUID | None) -> UUID:
    """Return the given topic id, or the only one that the archive has of the topic.

    Raises CommandError, UsageError.
    """
    chosen_topics(root, (topic,))
    lives = archived_topic_ids(root, topic)
    if topic_id is None:
        if len(lives) > 1:
            told = ", ".join(map(str, lives))
            raise click.UsageError(f"{topic} has several lives, name one with --topic-id: {told}")
        return lives[0]
    if topic_id not in lives:
        raise CommandError(f"{root} has no archive of {topic} with topic id {topic_id}")
    return topic_id


def chosen_lives(root: Path, asked: tuple[str, ...]) -> list[ArchivedTopic]:
    """Return each topic id of the given topics, or of all topics. Raises CommandError."""
    return [
        ArchivedTopic(root, topic, topic_id)
        for topic in chosen_topics(root, asked)
        for topic_id in archived_topic_ids(root, topic)
    ]


def swept_files(life: ArchivedTopic, grace_ms: int, *, dry_run: bool) -> list[str]:
    """Remove, or only list, files that were replaced long enough ago, and files of dead runs.

    Returns their paths within the archive. Raises ArchiveError.
    """
    if not dry_run:
        # Update the tables first: a table may lag behind, e.g. after a killed run, and name
        # replaced files.
        publish(life.generation, life.topic_id)
    found = sweep(
        life.generation,
        life.log,
        now_s=time.time(),
        replaced_grace_s=grace_ms / 1000,
        dry_run=dry_run,
    )
    return [str((life.generation / one).relative_to(life.root)) for one in found]


def note_swept(swept: list[str], *, dry_run: bool) -> None:
    """Print how many files were removed, or list the ones that would be."""
    for path in swept if dry_run else ():
        note(f"Would be removed: {path}")
    if swept and not dry_run:
        note(f"Files that were removed: {len(swept)}")
