"""TLS, the login of clients, tokens of OAuth, and access rules."""
