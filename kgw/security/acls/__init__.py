"""Access rules (ACLs): a rule allows or denies operations of a principal on resources. No I/O.

- `terms`: the words of a rule, with Kafka's codes;
- `binding`: one rule, its stored form, and the filters that find rules;
- `decision`: the decision that follows from the matching rules;
- `scope`: finds the matching rules by the name of a resource;
- `authorizer`: holds all rules, and answers the questions of the request handlers.
"""
