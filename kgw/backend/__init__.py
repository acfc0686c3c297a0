"""Where record bytes live: the storage seam and its implementations."""
