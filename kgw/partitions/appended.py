"""What became of a batch that was given to a partition."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kgw.backend.append import Append


class Appended(NamedTuple):
    """What `append` did with a batch.

    `result` has the offset once it is done; it is None for a duplicate, whose `base_offset` is
    known.
    """

    result: Append | None
    base_offset: int
    log_append_time_ms: int
    """-1 unless the topic uses log append time."""
    is_undecided: bool = False
    """Whether `result` may still be a refusal: a KafkaError."""
