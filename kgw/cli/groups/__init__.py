"""Groups and offsets: `kgw groups`, `kgw offsets` and `kgw migrate`."""
