"""Damaged records that a command reads: an error, or skipped, reported and counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from kgw.cli.shared.errors import CommandError, ExitCode
from kgw.cli.shared.output import note_as
from kgw.offsets.seeker import Seek, SeekKind

if TYPE_CHECKING:
    from kgw.client.subscription import OffsetSubscription
    from kgw.offsets.ranges import DamagedRangeError


PROBES_WHEN_SKIPPING: Final = 1 << 20
"""How many offsets are tried to find the end of damage; usual batches have fewer records."""


class SkippedDamage:
    """The damage in one topic that one run of a command has skipped."""

    def __init__(self, topic: str, *, is_skipping: bool, is_json: bool = False) -> None:
        self.ranges = 0
        self.offsets = 0
        self._topic = topic
        self._is_skipping = is_skipping
        self._is_json = is_json

    async def skip(self, subscription: OffsetSubscription, error: DamagedRangeError) -> None:
        """Skip damaged records; raise CommandError if that is not allowed or not possible."""
        what = f"topic {self._topic} {error}"
        if error.end_offset is None:
            raise CommandError(f"{what}; where they end is not known, --from goes on elsewhere")
        if not self._is_skipping:
            raise CommandError(f"{what}; --skip-damaged goes on behind them")
        self.ranges += 1
        self.offsets += error.end_offset - error.start_offset
        damaged = {
            "topic": self._topic,
            "partition": error.partition,
            "start_offset": error.start_offset,
            "end_offset": error.end_offset,
            "detail": str(error),
        }
        note_as(what, {"damaged": damaged}, is_json=self._is_json)
        await subscription.seek({error.partition: Seek(SeekKind.EXACT_OFFSET, error.end_offset)})

    def tell(self) -> None:
        """If damage was skipped, report how much, and end the command with its exit code."""
        if not self.ranges:
            return
        note_as(
            f"Skipped {self.offsets} damaged offset{'s' * (self.offsets != 1)} in {self.ranges} "
            f"place{'s' * (self.ranges != 1)}.",
            {"skipped": {"places": self.ranges, "offsets": self.offsets}},
            is_json=self._is_json,
        )
        raise click.exceptions.Exit(ExitCode.DAMAGED)
