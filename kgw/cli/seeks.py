"""Where to begin and to end, as commands take it: WHERE."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import click

from kgw.cli.errors import CommandError
from kgw.offsets.seeker import RESUMING, Seek
from kgw.offsets.where import is_number, parse_seek

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kgw.client import WireReader


class PartitionSeek(NamedTuple):
    """A partition that is named, and where it begins if that is said too."""

    partition: int
    seek: Seek | None


def seek_option(ctx: click.Context, param: click.Parameter, value: str) -> Seek:
    """Return the seek of an option."""
    try:
        return parse_seek(value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None


def partitions_option(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> tuple[PartitionSeek, ...]:
    """Return the partitions of an option that takes N or N:WHERE several times."""
    named: list[PartitionSeek] = []
    for text in values:
        number, separator, where = text.partition(":")
        if not is_number(number):
            raise click.BadParameter(f"{text!r} is neither N nor N:WHERE", ctx, param)
        if any(one.partition == int(number) for one in named):
            raise click.BadParameter(f"partition {int(number)} is named twice", ctx, param)
        named.append(
            PartitionSeek(int(number), seek_option(ctx, param, where) if separator else None)
        )
    return tuple(named)


def choose_seeks(
    reader: WireReader, default: Seek, named: Iterable[PartitionSeek]
) -> dict[int, Seek]:
    """Return the seek of each partition that is meant: those named, or all.

    Raises CommandError for a partition that the topic does not have.
    """
    known = reader.partitions
    chosen: dict[int, Seek] = {}
    for one in named:
        if one.partition not in known:
            raise CommandError(
                f"topic {reader.topic} has no partition {one.partition}: it has {len(known)}, "
                f"0 to {len(known) - 1}"
            )
        chosen[one.partition] = one.seek or default
    return chosen or dict.fromkeys(known, default)


def require_group(seeks: Iterable[Seek], group: str | None) -> None:
    """Raise UsageError when a position is to be resumed and no group is named, or the reverse."""
    is_resuming = any(one.kind in RESUMING for one in seeks)
    if is_resuming and group is None:
        raise click.UsageError("say whose position to resume: --group GROUP")
    if group is not None and not is_resuming:
        raise click.UsageError(f"--group is for resume: nothing goes to where {group} stands")
