"""SMQ's agent API (`SeaweedMessagingAgent`), served over gRPC for the topics of this gateway.

From the rules to the wire:

1. `ring`: which partition a key goes to, and which one a range of SMQ's ring means. Pure.
2. `values`: recognises SMQ's RecordValues, and wraps other values in one. Pure.
3. `windows`: records that a subscriber has received and not acknowledged. Pure.
4. `answers`: the answers to a publisher, in the order of its records, in bounded memory. Pure.
5. `wanted`: a subscriber's first message, checked. Pure.
6. `topics`: names, and topics that are made for a publisher.
7. `publication`: the records of one publisher on their way into partitions.
8. `membership`: a subscriber as a member of a group, beside Kafka's consumers.
9. `subscription`: one subscriber: partitions that come and go, deliveries, commits.
10. `service`: the four methods, with limits and statuses.
11. `server`: the listener.
"""
