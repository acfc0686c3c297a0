"""Moving groups from the offset ledger of the old scheme to native offsets, as a client does."""
