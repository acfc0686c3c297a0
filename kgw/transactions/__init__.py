"""Transactions: the producer of each transactional id, its open transaction, and how that ends.

A request passes through these modules from top to bottom, and its result from bottom to top:

- `requests`: the requests to a transactional id and their results;
- `coordinator`: finds the id of a request, or creates it. Limits their number, removes idle ones;
- `table`: the runtime of `kgw.coordinator`, which passes the request to the id's state machine and
  carries out the effects that the machine returns. It also ends transactions;
- `machine`, with `states` and `rows`: the rules of one id, as events and the effects that follow;
- `ending`: ends a transaction in all its partitions and groups, and retries until it succeeds.

This package does not import partitions, groups or producer ids: the gateway passes in functions
that call them.
"""
