"""Reads several partitions, within the size limits and the deadline of a Fetch."""
