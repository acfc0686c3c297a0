"""Record batches: their 61-byte header, and readers and builders of the records after it."""
