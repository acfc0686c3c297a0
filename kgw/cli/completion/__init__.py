"""`kgw completion`, and the answers that a shell gets when TAB is pressed."""
