"""Shipped to users: clocks, fakes, faults, gateways and the contract suites of backends."""
