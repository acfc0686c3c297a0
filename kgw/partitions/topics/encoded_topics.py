"""What answers say of topics, encoded once and kept until the topic changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Hashable

    from kgw.partitions.topics.topic import Topic

KEPT_BYTES: Final = 8 << 20
"""Bytes of all pieces together: some 25 forms of 1,000 topics with ten partitions each."""

# A piece's place in its dictionary, and the object round its bytes.
_OVERHEAD_BYTES = 140


class EncodedTopics:
    """A piece of bytes for each topic, in each form that is asked for: API, version, options.

    What a form says is for whoever encodes it; a topic that gets partitions or goes is forgotten in
    all of them. Where there is no room, the form goes that was asked for the longest time ago, and
    what is too much even then is not kept.
    """

    def __init__(self, limit_bytes: int = KEPT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        # In the order in which the forms were asked for last.
        self._forms: dict[Hashable, dict[bytes, bytes]] = {}
        self.kept_bytes = 0

    def form(self, form: Hashable) -> dict[bytes, bytes]:
        """Return the pieces of a form by topic id, to be read; `keep` adds to them."""
        pieces = self._forms.pop(form, None)
        if pieces is None:
            pieces = {}
        self._forms[form] = pieces
        return pieces

    def keep(self, form: Hashable, topic: Topic, piece: bytes) -> None:
        """Keep a piece that says how a topic is now, if there is room for it."""
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
        """Have a topic's pieces made anew: it has changed, or is gone."""
        for pieces in self._forms.values():
            piece = pieces.pop(topic.topic_id, None)
            if piece is not None:
                self.kept_bytes -= _size(piece)


def _size(piece: bytes) -> int:
    return len(piece) + _OVERHEAD_BYTES
