"""Record batches: the 61-byte header in place, and readers and builders for what lies behind it."""
