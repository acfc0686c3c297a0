"""SMQ's agent API (`SeaweedMessagingAgent`), served over gRPC for the topics of this gateway.

From the rules to the wire:

1. `ring`: which partition a key goes to, and which one a range of SMQ's ring means. Pure.
2. `values`: what SMQ knows as a RecordValue, and what becomes of values that are none. Pure.
3. `windows`: what a subscriber has been given and not acknowledged. Pure.
4. `answers`: the answers to a publisher, in the order of its records, and no more than fit. Pure.
5. `wanted`: what a subscriber asks for. Pure.
6. `topics`: names, and topics that are made for a publisher.
7. `publication`: the records of one publisher on their way into partitions.
8. `membership`: a subscriber as a member of a group, beside Kafka's consumers.
9. `subscription`: one subscriber: partitions that come and go, deliveries, commits.
10. `service`: the four methods, with limits and statuses.
11. `server`: the listener.
"""
