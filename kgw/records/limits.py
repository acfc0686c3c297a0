"""Limits for reading batches of unknown clients."""

from __future__ import annotations

from typing import Final, NamedTuple

DEFAULT_MAX_DECOMPRESSED_BYTES: Final = 64 << 20
DEFAULT_MAX_RATIO: Final = 200
MAX_HEADERS: Final = 100_000
"""The most headers of one record. An empty header of two bytes takes more than a hundred bytes in
memory."""


class DecompressionLimits(NamedTuple):
    """Limits of decompression, which apply to the actual output, not to sizes in headers.

    An output of `always_bytes` is always allowed, as runs of equal bytes may exceed any ratio and
    this little memory is harmless.
    """

    max_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES
    max_ratio: int = DEFAULT_MAX_RATIO
    always_bytes: int = 1 << 20

    def bound(self, compressed_bytes: int) -> int:
        """Return the largest allowed output for a number of compressed bytes."""
        return min(self.max_bytes, max(self.always_bytes, compressed_bytes * self.max_ratio))


DEFAULT_LIMITS: Final = DecompressionLimits()
