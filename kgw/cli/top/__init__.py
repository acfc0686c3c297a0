"""`kgw top`: the figures, the lines of the screen, and the terminal."""
