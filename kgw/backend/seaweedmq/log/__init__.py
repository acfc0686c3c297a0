"""Reads and changes the log files of one partition, and stores its snapshots."""
