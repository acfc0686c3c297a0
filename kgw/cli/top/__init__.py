"""`kgw top`: figures, a screen of lines, and the terminal."""
