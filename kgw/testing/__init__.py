"""Test helpers for users: the pytest plugin, brokers, clocks, batches, and suites for backends."""
