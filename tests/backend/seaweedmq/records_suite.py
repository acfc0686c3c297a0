"""What the backend suites find otherwise in layout `records`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.backend.base import RecompressionJob
from kgw.testing.batches import make_batch
from kgw.testing.segmented_suite import SegmentedSuite

if TYPE_CHECKING:
    from pathlib import Path


class RecordsSuite(SegmentedSuite):
    """One record an entry, and batches made of them again."""

    async def test_recompression_changes_nothing_that_is_told(self, tmp_path: Path) -> None:
        """Nor anything else: entries that others read hold no compressed records."""
        async with self.segmented(tmp_path) as log:
            for number in range(16):
                await log.append([make_batch([b"%d" % number * 100])])
            segments = await log.segments()
            report = await log.recompress(RecompressionJob(upper_bound=1 << 40, level=3))
            assert (len(segments) - 1, 0) == (report.segments, report.segments_exchanged)
            assert segments == await log.segments()
