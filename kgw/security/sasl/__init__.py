"""Login with SASL: SCRAM, PLAIN and delegation tokens."""
