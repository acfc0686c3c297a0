"""The runtime of coordinators, which runs the state machines of groups and transactional ids.

- `machine`: the events and effects of a machine, and the declaration of a kind of machine. It does
  no I/O;
- `entry`: one group or transactional id in the runtime, a queued write, the reply to a request;
- `runtime`: runs the machines, stores their changes, sends answers, sets timers, loads entries.

`kgw.groups` and `kgw.transactions` import this package, which imports neither of them.
"""
