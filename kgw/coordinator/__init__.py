"""One runtime for everything that a coordinator keeps: groups of any kind, and transactions.

- `machine`: the events and effects of a machine, and how a kind of machine is declared. Pure;
- `entry`: one state as the runtime keeps it, a queued write, the reply to a request;
- `runtime`: steps the machines, stores their changes, answers, sets timers, loads and releases.

The packages of the kinds (`kgw.groups`, `kgw.transactions`) import this one, which knows none.
"""
