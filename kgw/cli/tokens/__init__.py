"""`kgw tokens`: delegation tokens."""
