"""Placement: which node owns a partition, a group or a transactional id, and where it is reached.

A reader asks each time and keeps no answer, for an owner may change between two requests. Today one
process is the whole cluster and owns everything.
"""

from __future__ import annotations

import json
import logging
from abc import ABC, abstractmethod
from base64 import urlsafe_b64encode
from enum import IntEnum
from os import urandom
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from kgw.config import Node
from kgw.errors import StorageError
from kgw.state.base import Change, DamagedRowsError
from kgw.state.kinds import CLUSTER
from kgw.types import NO_LEADER_EPOCH, PartitionKey

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kgw.config import Config, Listener
    from kgw.state.base import Row, StateStore

_log = logging.getLogger(__name__)


_NO_NODE_ID: Final = -1
"""Until the state store has been read."""


class CoordinatorType(IntEnum):
    """What has a coordinator, by the numbers of FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1


class CoordinatorKey(NamedTuple):
    """A group or a transactional id."""

    type: CoordinatorType
    key: str


Owned: TypeAlias = PartitionKey | CoordinatorKey
"""What has one owner: the leader of a partition, the coordinator of a group or transactional id."""


class Owner(NamedTuple):
    """A node that owns something, and the epoch in which it does.

    The epoch is what clients of other nodes are told as a partition's leader epoch. The partitions
    of this node have theirs in their logs.
    """

    node: Node
    epoch: int


class Placement(ABC):
    """The nodes of a cluster, and what each of them owns."""

    cluster_id: str = ""
    """Made at the first start of a cluster and kept for ever."""

    @property
    @abstractmethod
    def version(self) -> int:
        """A number that grows when an owner changes: what was made of owners is outdated then."""

    @abstractmethod
    async def open(self, state: StateStore, config: Config) -> Config:
        """Learn the cluster's id, and this node's.

        Returns the configuration with the node id that counts. Raises StorageError.
        """

    @property
    @abstractmethod
    def here(self) -> Node:
        """The node that this process is."""

    @abstractmethod
    def advertise(self, listeners: Mapping[str, Listener]) -> None:
        """Take where this node's clients are told to connect to, before the first request."""

    @abstractmethod
    def replaced_by(self, node: Node) -> None:
        """Learn that another node owns from now on whatever this process did.

        It may have this node's id, and another address.
        """

    @property
    @abstractmethod
    def nodes(self) -> Sequence[Node]:
        """Every node, this one among them."""

    @property
    @abstractmethod
    def controller(self) -> Node:
        """The node that clients are told to send changes of topics to."""

    @abstractmethod
    def owner(self, owned: Owned) -> Owner:
        """Return who owns something, which need not exist yet."""

    def owns(self, owned: Owned) -> bool:
        """Whether this node is the owner."""
        return self.owner(owned).node.node_id == self.here.node_id


class OneProcess(Placement):
    """A cluster of one node, which owns everything, until it is replaced by another."""

    def __init__(self) -> None:
        self._here = Node(_NO_NODE_ID, {})
        self._replacements = 0
        self._take(self._here)

    def __repr__(self) -> str:
        return f"<OneProcess node={self.here.node_id} cluster={self.cluster_id}>"

    @property
    def version(self) -> int:
        return self._replacements

    async def open(self, state: StateStore, config: Config) -> Config:
        # A node id that is given wins over the stored one, which wins over the default.
        node_id = config.node_id
        row = await load_cluster_row(state, CLUSTER, "the next start makes a new cluster id")
        stored = None if row is None else json.loads(row.value)
        if stored is None:
            self.cluster_id = urlsafe_b64encode(urandom(16)).rstrip(b"=").decode()
        else:
            self.cluster_id = stored["cluster_id"]
            if not config.is_given("node.id") and stored["node_id"] != node_id:
                node_id = stored["node_id"]
                config = config.with_kept("node.id", node_id)
        self._take(self.here._replace(node_id=node_id))
        if stored is not None and stored["node_id"] != node_id:
            _log.warning("this node was %d and is %d now", stored["node_id"], node_id)
        if stored is None or stored["node_id"] != node_id:
            fields = {"cluster_id": self.cluster_id, "node_id": node_id}
            await state.apply([Change(CLUSTER, CLUSTER, json.dumps(fields).encode())])
        return config

    @property
    def here(self) -> Node:
        return self._here

    def advertise(self, listeners: Mapping[str, Listener]) -> None:
        self._take(self.here._replace(listeners=listeners))

    def replaced_by(self, node: Node) -> None:
        self._replacements += 1
        self._owner = Owner(node, NO_LEADER_EPOCH)

    def _take(self, node: Node) -> None:
        self._here = node
        if not self._replacements:
            self._owner = Owner(node, NO_LEADER_EPOCH)

    @property
    def nodes(self) -> Sequence[Node]:
        return (self._owner.node,)

    @property
    def controller(self) -> Node:
        return self._owner.node

    def owner(self, _: Owned) -> Owner:
        return self._owner

    def owns(self, _: Owned) -> bool:
        return not self._replacements


async def load_cluster_row(state: StateStore, kind: str, without: str) -> Row | None:
    """Return the one row of a kind that has one. Raises StorageError, which says what helps."""
    try:
        return (await state.load(kind)).get(CLUSTER)
    except DamagedRowsError as error:
        raise StorageError(f"{error}; `kgw log adopt` removes it, and {without}") from error
