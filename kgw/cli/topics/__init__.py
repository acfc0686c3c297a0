"""Topics and records: `kgw topics`, `produce`, `consume`, `producers`, `transactions`."""
