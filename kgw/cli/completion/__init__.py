"""`kgw completion`, and the suggestions that it gives to a shell when TAB is pressed."""
