"""Commands for stored records and state: `kgw log`, `backup`, `restore` and `state`."""
