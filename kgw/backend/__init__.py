"""The storage interface and its implementations."""
