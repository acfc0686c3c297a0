"""Reads of several partitions: within the limits of a Fetch, and within its time."""
