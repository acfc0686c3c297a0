"""A client, options, output and errors, for all commands."""
