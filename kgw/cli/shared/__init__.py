"""Parts that all commands share: client, options, output and errors."""
