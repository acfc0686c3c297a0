"""Topics and their records: `kgw topics`, `produce`, `consume`, `producers`, `transactions`."""
