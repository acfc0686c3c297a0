"""How much a reader takes from a stranger's batch."""

from __future__ import annotations

from typing import Final, NamedTuple

DEFAULT_MAX_DECOMPRESSED_BYTES: Final = 64 << 20
DEFAULT_MAX_RATIO: Final = 200
MAX_HEADERS: Final = 100_000
"""Of one record. Two bytes of an empty header become more than a hundred in memory."""


class DecompressionLimits(NamedTuple):
    """Ends of decompression, checked while the bytes come and not by what a header claims.

    A batch may always grow to `always_bytes`: runs of equal bytes compress far better than any
    ratio, and so little cannot hurt.
    """

    max_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES
    max_ratio: int = DEFAULT_MAX_RATIO
    always_bytes: int = 1 << 20

    def bound(self, compressed_bytes: int) -> int:
        """Return how many bytes may come out of this many."""
        return min(self.max_bytes, max(self.always_bytes, compressed_bytes * self.max_ratio))


DEFAULT_LIMITS: Final = DecompressionLimits()
