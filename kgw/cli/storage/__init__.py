"""Stored records and state: `kgw log`, `kgw backup`, `kgw restore` and `kgw state`."""
