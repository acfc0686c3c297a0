"""Transactions: who writes under which transactional id, what is in its transaction, how it ends.

A request goes down this list, and what is stored goes up again:

- `requests`: what is asked of a transactional id, and what it answers;
- `coordinator`: finds the id, or has it made. It knows the limits on ids, and lets idle ones go;
- `table`: the runtime of `kgw.coordinator`, which gives the request to the id's machine and carries
  out its effects: here also the ends of transactions;
- `machine`, with `states` and `rows`: the rules of one id. Events and time in, effects out;
- `ending`: brings a decision to every partition and group of a transaction, however long it takes.

Partitions, groups and producer ids belong to others: the gateway hands in how they are asked.
"""
