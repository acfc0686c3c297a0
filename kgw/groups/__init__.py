"""Groups of consumers and other workers: who is in them, who does what, how far they have read."""
