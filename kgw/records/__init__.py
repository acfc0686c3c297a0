"""Record batches: their 61-byte header, and readers and builders of their records."""
