"""Encoded parts of answers about topics, cached until the topic changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Hashable

    from kgw.partitions.topics.topic import Topic

KEPT_BYTES: Final = 8 << 20
"""Limit in bytes of all cached parts: some 25 forms of 1,000 topics with ten partitions each."""

# Memory for a part's dictionary entry and its bytes object.
_OVERHEAD_BYTES = 140


class EncodedTopics:
    """Encoded bytes for each topic in each form, which is an API, a version and options.

    The caller defines the contents of a form; a topic that changes or is deleted is removed from
    all forms. When the cache is full, the form that was asked for the longest time ago is dropped;
    bytes that do not fit even then are not cached.
    """

    def __init__(self, limit_bytes: int = KEPT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        # In the order in which the forms were last asked for.
        self._forms: dict[Hashable, dict[bytes, bytes]] = {}
        self.kept_bytes = 0

    def form(self, form: Hashable) -> dict[bytes, bytes]:
        """Return the encoded parts of a form by topic id, read-only; `keep` adds to them."""
        pieces = self._forms.pop(form, None)
        if pieces is None:
            pieces = {}
        self._forms[form] = pieces
        return pieces

    def keep(self, form: Hashable, topic: Topic, piece: bytes) -> None:
        """Cache the encoding of a topic's current state, if there is room for it."""
        if topic.is_deleted:
            return
        size = len(piece) + _OVERHEAD_BYTES
        pieces = self.form(form)
        while self.kept_bytes + size > self._limit_bytes:
            oldest = next(iter(self._forms))
            if oldest == form:
                return
            self.kept_bytes -= sum(map(_size, self._forms.pop(oldest).values()))
        if topic.topic_id in pieces:
            self.kept_bytes -= _size(pieces[topic.topic_id])
        pieces[topic.topic_id] = piece
        self.kept_bytes += size

    def forget(self, topic: Topic) -> None:
        """Drop the cached parts of a topic that has changed or was deleted."""
        for pieces in self._forms.values():
            piece = pieces.pop(topic.topic_id, None)
            if piece is not None:
                self.kept_bytes -= _size(piece)


def _size(piece: bytes) -> int:
    return len(piece) + _OVERHEAD_BYTES
