"""Login with SASL: SCRAM, PLAIN, OAUTHBEARER and delegation tokens."""
