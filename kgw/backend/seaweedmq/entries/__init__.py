"""SMQ's log entries: record batches become entries, and entries record batches. Pure."""
