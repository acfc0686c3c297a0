"""Shipped to users: clocks, batches, gateways and the contract suites of backends."""
