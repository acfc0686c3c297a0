"""Converts record batches to SMQ's log entries, and log entries to record batches. Pure."""
