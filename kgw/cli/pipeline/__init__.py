"""`kgw pipeline`: each command is named like its module, and like its job in `kgw.pipeline`."""
