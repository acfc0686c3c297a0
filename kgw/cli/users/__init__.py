"""`kgw users`: the SCRAM credentials of users."""
