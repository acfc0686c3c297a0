"""`kgw pipeline`: a command has the name of its file, and of its job in `kgw.pipeline`."""
