"""The lease of a namespace, and the gateways that stand by for it."""
