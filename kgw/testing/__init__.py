"""Shipped to users: clocks, fakes, faults and the contract suite of backends."""
