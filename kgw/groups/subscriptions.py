"""Reads the subscriptions in the metadata of members with protocol type `consumer`. Pure.

All other modules of this package treat metadata as opaque bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.errors import DecodeError

if TYPE_CHECKING:
    from kgw.groups.requests import MemberProtocol

CONSUMER = "consumer"
"""The protocol type of Kafka's consumers."""


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """Return the topics of a consumer's subscription; None if the bytes cannot be decoded."""
    from kgw.protocol.blobs import decode_subscribed_topics

    try:
        return frozenset(decode_subscribed_topics(metadata))
    except DecodeError:
        return None


def is_same_interest(
    protocol_type: str, before: tuple[MemberProtocol, ...], after: tuple[MemberProtocol, ...]
) -> bool:
    """Return whether a static member joins again with the same protocols and subscription.

    For consumers only the topics of the subscription are compared. The owned partitions and their
    generation (KIP-429, KIP-792) are ignored: a restarted process owns no partitions, which is no
    reason for a rebalance.
    """
    if before == after:
        return True
    if protocol_type != CONSUMER or [one.name for one in before] != [one.name for one in after]:
        return False
    for old, new in zip(before, after, strict=True):
        topics = subscribed_topics(old.metadata)
        if topics is None or topics != subscribed_topics(new.metadata):
            return False
    return True
