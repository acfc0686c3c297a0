"""Who a client is, and what it may do: TLS, login and access rules."""
