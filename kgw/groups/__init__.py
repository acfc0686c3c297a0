"""Groups of consumers and of other clients: their members, assignments and committed offsets.

A request passes through these modules from top to bottom, and its result from bottom to top:

- `requests`: the requests to a group and their results;
- `coordinator`: finds the group of a request, or creates it. Lists the kinds of groups;
- `table`: the runtime of `kgw.coordinator`, which passes the request to the group's state machine
  and carries out the effects that the machine returns. It is the same for all kinds of groups;
- `machine`: the effects that only groups have, and the arguments of a new machine;
- `classic`, with `classic_membership`, `members`, `rounds`, `states` and `rows`: the only kind of
  machine so far. Another kind of group would have its own machine;
- `writes`: stores committed offsets together with the rows of the machines.

`retention` deletes old committed offsets; `loading` loads the stored ones when the process starts.
"""
