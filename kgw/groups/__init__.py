"""Groups of consumers and other workers: who is in them, who does what, how far they have read.

A request goes down this list, and what is stored goes up again:

- `requests`: what groups are asked, and what they answer;
- `coordinator`: finds the group, or has one made. It lists the kinds of groups that there are;
- `table`: the runtime of `kgw.coordinator`, which gives the request to the group's machine and
  carries out its effects. It knows no kind of group;
- `machine`: the effects that only groups have, and the beginning of a machine;
- `classic`, with `members`, `rounds`, `states` and `rows`: the one kind of machine that there is.
  Another kind of group is another machine beside it;
- `writes`: committed offsets, stored with the rows of the machines.

`retention` takes committed offsets away, `loading` brings all of it back at a start.
"""
