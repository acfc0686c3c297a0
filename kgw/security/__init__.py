"""TLS, the login of clients, and access rules."""
