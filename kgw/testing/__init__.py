"""Shipped to users: the pytest plugin, brokers for tests, clocks, batches, suites for backends."""
