"""The option values WHERE, at which reading begins or ends."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import click

from kgw.cli.shared.errors import CommandError
from kgw.cli.shared.settings import parsed
from kgw.offsets.seeker import RESUMING, Seek
from kgw.offsets.where import is_number, parse_seek, parse_time

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kgw.client import WireReader


class PartitionSeek(NamedTuple):
    """A partition in an option, and the position at which to begin, if the option gives one."""

    partition: int
    seek: Seek | None


def parse_partitions(texts: Iterable[str]) -> tuple[PartitionSeek, ...]:
    """Parse partitions in the form N or N:WHERE.

    Raises ValueError, also for a repeated partition.
    """
    named: dict[int, PartitionSeek] = {}
    for text in texts:
        number, separator, where = text.partition(":")
        if not is_number(number):
            raise ValueError(f"{text!r} is neither N nor N:WHERE")
        partition = int(number)
        if partition in named:
            raise ValueError(f"partition {partition} is named twice")
        named[partition] = PartitionSeek(partition, parse_seek(where) if separator else None)
    return tuple(named.values())


WHERE = parsed(parse_seek)
time_option = partial(click.option, callback=parsed(parse_time), metavar="TIME")
partitions_option = partial(
    click.option,
    "-p",
    "--partition",
    "partitions",
    multiple=True,
    callback=parsed(parse_partitions),
    metavar="N[:WHERE]",
)


def choose_seeks(
    reader: WireReader, default: Seek, named: Iterable[PartitionSeek]
) -> dict[int, Seek]:
    """Return the seek of each partition to read: the named ones, or all.

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
    """Raise UsageError for a committed position without a group, or a group without one."""
    is_resuming = any(one.kind in RESUMING for one in seeks)
    if is_resuming and group is None:
        raise click.UsageError("say whose position to resume: --group GROUP")
    if group is not None and not is_resuming:
        raise click.UsageError(f"--group is for resume: nothing goes to where {group} stands")
