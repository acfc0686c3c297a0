"""Groups of consumers and other workers: who is in them, who does what, how far they have read.

A request goes down this list, and what is stored goes up again:

- `requests`: what groups are asked, and what they answer;
- `coordinator`: finds the group, or has one made. It lists the kinds of groups that there are;
- `table`: gives the request to the group's machine, and carries out what that wants: answers, rows
  and offsets to be stored, timers, gauges. It knows no kind of group;
- `machine`: what a machine is: events and time in, effects out, and nothing else;
- `classic`, with `members`, `rounds`, `states` and `rows`: the one kind of machine that there is.
  Another kind of group is another machine beside it;
- `writer` and `writes`: one queue to the state store for all groups.

`retention` takes committed offsets away, `loading` brings all of it back at a start.
"""
