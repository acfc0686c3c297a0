"""`kgw acls`: access rules."""
