"""What commands share that are given an archive: its directory, its topics, one life of a topic."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kgw.cli.errors import CommandError
from kgw.cli.settings import parsed
from kgw.pipeline.archive.lives import archived_lives, archived_topics

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any
    from uuid import UUID


def archive_option(
    name: str = "root", *, is_required: bool = True, what: str = "The archive."
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the option `--archive DIR`, which must exist, under the name of a parameter."""
    return click.option(
        "--archive",
        name,
        required=is_required,
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        # Tasks of a cluster have working directories of their own.
        callback=parsed(Path.absolute),
        metavar="DIR",
        help=what,
    )


def new_archive(text: str) -> Path:
    """Return where an archive is made. Raises ValueError for what is no local directory."""
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


def chosen_topics(root: Path, asked: tuple[str, ...]) -> list[str]:
    """Return the topics that were asked for, or all of an archive. Raises CommandError."""
    known = archived_topics(root)
    if not known:
        raise CommandError(f"{root} is no archive: it has no commit log")
    if unknown := [name for name in asked if name not in known]:
        raise CommandError(f"{root} has no archive of {', '.join(unknown)}")
    return list(asked) or known


def chosen_life(root: Path, topic: str, topic_id: UUID | None) -> UUID:
    """Return the life of a topic that is meant: the one that was named, or the only one.

    Raises CommandError, UsageError.
    """
    chosen_topics(root, (topic,))
    lives = archived_lives(root, topic)
    if topic_id is None:
        if len(lives) > 1:
            told = ", ".join(map(str, lives))
            raise click.UsageError(f"{topic} has several lives, name one with --topic-id: {told}")
        return lives[0]
    if topic_id not in lives:
        raise CommandError(f"{root} has no archive of {topic} with topic id {topic_id}")
    return topic_id
