"""Limits for reading batches of unknown clients."""

from __future__ import annotations

from typing import Final, NamedTuple

DEFAULT_MAX_DECOMPRESSED_BYTES: Final = 64 << 20
DEFAULT_MAX_RATIO: Final = 200
MAX_HEADERS: Final = 100_000
"""The most headers of one record. An empty header of two bytes takes more than a hundred bytes in
memory."""


class DecompressionLimits(NamedTuple):
    """Limits of decompression, checked against the actual output and not against claimed sizes.

    A batch may always become `always_bytes` large: runs of equal bytes compress far better than any
    ratio, and so little memory does no harm.
    """

    max_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES
    max_ratio: int = DEFAULT_MAX_RATIO
    always_bytes: int = 1 << 20

    def bound(self, compressed_bytes: int) -> int:
        """Return the most bytes that this many compressed bytes may become."""
        return min(self.max_bytes, max(self.always_bytes, compressed_bytes * self.max_ratio))


DEFAULT_LIMITS: Final = DecompressionLimits()
