"""SMQ's agent API (`SeaweedMessagingAgent`), served over gRPC for the topics of this gateway.

The modules, from the rules to the network:

1. `ring`: the partition of a key, and the partition that a range of SMQ's ring means. Pure.
2. `values`: recognises SMQ's RecordValues, and wraps other values in a RecordValue. Pure.
3. `windows`: the records that a subscriber has received but not acknowledged. Pure.
4. `answers`: the responses to a publisher, in the order of its records, with bounded memory. Pure.
5. `subscribe_request`: checks a subscriber's first message. Pure.
6. `clients`: the user of a call, and the user's rights.
7. `topics`: names of topics, and topics that are created for a publisher.
8. `publication`: stores the records of one publisher in partitions.
9. `membership`: makes a subscriber a member of a group, beside Kafka's consumers.
10. `subscription`: one subscriber: its changing partitions, deliveries and commits.
11. `service`: the four gRPC methods, with limits and statuses.
12. `certificates`: the key and the certificates of the listener, which may change.
13. `server`: the gRPC listener.
"""
