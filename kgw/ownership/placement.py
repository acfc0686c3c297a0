"""Placement: the node that owns a partition, a group or a transactional id, and its addresses.

An owner may change between two requests, so callers look it up each time. Today one process is the
whole cluster and owns everything.
"""

from __future__ import annotations

import json
import logging
from abc import ABC, abstractmethod
from functools import cached_property
from os import urandom
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.config import Node
from kgw.errors import StorageError
from kgw.state.base import Change, DamagedRowsError
from kgw.state.kinds import CLUSTER
from kgw.types import NO_LEADER_EPOCH, format_uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kgw.config import Config, Listener
    from kgw.ownership.keys import Owned
    from kgw.ownership.ownership import Ownership
    from kgw.state.base import Row, StateStore

_log = logging.getLogger(__name__)


_NO_NODE_ID: Final = -1
"""The node id before the state store is read."""

NOBODY: Final = Node(_NO_NODE_ID, {})
"""The owner of a partition, group or transactional id whose owner is not known."""


class Owner(NamedTuple):
    """The node that owns a partition, group or transactional id, and the epoch of its ownership.

    For a partition of another node, clients get this epoch as the leader epoch. The partitions of
    this node have their leader epochs in their logs.
    """

    node: Node
    epoch: int


class Placement(ABC):
    """The nodes of a cluster, and the owner of each partition, group and transactional id."""

    is_settled = True
    """Whether the ids of the cluster and of this node are known; False for a standby node."""

    cluster_id: str = ""
    """Chosen at the first start of a cluster; never changes."""

    bundles: Sequence[Callable[[Owned], bool]] = (lambda _: True,)
    """The bundles of keys that this node owns when it starts.

    Each is a function that accepts its keys.
    """

    @cached_property
    def ownerships(self) -> list[Ownership]:
        """The open bundles of this node. The gateway adds and removes them."""
        return []

    @property
    @abstractmethod
    def version(self) -> int:
        """A number that changes when an owner changes.

        Data computed for another number is outdated.
        """

    @abstractmethod
    async def open(self, state: StateStore, config: Config) -> Config:
        """Load the ids of the cluster and of this node from the state store.

        Returns the configuration with the effective node id. Raises StorageError.
        """

    @property
    @abstractmethod
    def here(self) -> Node:
        """The node of this process."""

    @abstractmethod
    def advertise(self, listeners: Mapping[str, Listener]) -> None:
        """Set the addresses of this node that clients get. Called before the first request."""

    @abstractmethod
    def replaced_by(self, node: Node | None) -> None:
        """Record that another node now owns everything that this process owned.

        That node may have the id of this node with another address. None: the node is not known.
        """

    def wait_for(self, node: Node | None, node_id: int) -> None:  # noqa: B027 - most are alone
        """Record that another node owns everything while this node, `node_id`, is a standby.

        `open` ends this state. None: the owner is not known.
        """

    def doubt(self, *, is_doubted: bool) -> None:  # noqa: B027 - most are alone
        """Name no owner instead of this node, as it is uncertain whether it still owns its keys."""

    def stand_by(self, nodes: Sequence[Node]) -> None:  # noqa: B027 - most are alone
        """Set the standby nodes, which own nothing and are ready to take over."""

    @property
    @abstractmethod
    def nodes(self) -> Sequence[Node]:
        """The nodes of the cluster in Metadata answers."""

    @property
    def owners(self) -> Sequence[Node]:
        """The nodes that own, or may own, any key."""
        return self.nodes

    @property
    @abstractmethod
    def controller(self) -> Node:
        """The node to which clients send changes of topics."""

    @abstractmethod
    def owner(self, owned: Owned) -> Owner:
        """Return the owner of a key: a partition, or a group or id, which need not exist."""

    def owns(self, owned: Owned) -> bool:
        """Return whether this node is the owner."""
        return self.owner(owned).node.node_id == self.here.node_id

    def ownership(self, owned: Owned) -> Ownership | None:
        """Return this node's open ownership that contains a partition, group or id, or None."""
        if self.owns(owned):
            for ownership in self.ownerships:
                if ownership.covers(owned):
                    return ownership
        return None


class OneProcess(Placement):
    """A cluster in which one node owns everything: this node, until another one replaces it."""

    def __init__(self) -> None:
        self._here = Node(_NO_NODE_ID, {})
        self._replacements = 0
        self._is_replaced = False
        self._is_doubted = False
        self._standbys: tuple[Node, ...] = ()
        self._take(self._here)

    def __repr__(self) -> str:
        return f"<OneProcess node={self.here.node_id} cluster={self.cluster_id}>"

    @property
    def version(self) -> int:
        return self._replacements * 2 + self._is_doubted

    def wait_for(self, node: Node | None, node_id: int) -> None:
        self.is_settled = False
        self._is_replaced = True
        self._here = self.here._replace(node_id=node_id)
        self._own(NOBODY if node is None else node)
        self._standbys = (self._here,) if self._here.listeners else ()

    async def open(self, state: StateStore, config: Config) -> Config:
        # The configured node id takes precedence over the stored one, which precedes the default.
        node_id = config.node_id
        row = await load_cluster_row(state, CLUSTER, "the next start makes a new cluster id")
        stored = None if row is None else json.loads(row.value)
        if stored is None:
            self.cluster_id = format_uuid(urandom(16))
        else:
            self.cluster_id = stored["cluster_id"]
            if not config.is_given("node.id") and stored["node_id"] != node_id:
                node_id = stored["node_id"]
                config = config.with_kept("node.id", node_id)
        self.is_settled, self._is_replaced, self._standbys = True, False, ()
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
        if not self.is_settled:
            self._standbys = (self._here,)

    def replaced_by(self, node: Node | None) -> None:
        self._is_replaced = True
        self._replacements += 1
        self._own(NOBODY if node is None else node)

    def doubt(self, *, is_doubted: bool) -> None:
        if is_doubted is not self._is_doubted:
            self._is_doubted = is_doubted
            self._take(self._here)

    def stand_by(self, nodes: Sequence[Node]) -> None:
        self._standbys = tuple(nodes)

    def _take(self, node: Node) -> None:
        self._here = node
        if not self._is_replaced:
            self._own(NOBODY if self._is_doubted else node)

    def _own(self, node: Node) -> None:
        self._owner = Owner(node, NO_LEADER_EPOCH)

    @property
    def nodes(self) -> Sequence[Node]:
        owner = self._owner.node
        others = [node for node in self._standbys if node.node_id != owner.node_id]
        if owner is not NOBODY:
            return (owner, *others)
        # This node is listed only if there is no other node to which clients could connect.
        return others or [self._here]

    @property
    def owners(self) -> Sequence[Node]:
        return (self._owner.node,)

    @property
    def controller(self) -> Node:
        return self._owner.node

    def owner(self, _: Owned) -> Owner:
        return self._owner

    def owns(self, _: Owned) -> bool:
        return not self._is_replaced

    def ownership(self, _: Owned) -> Ownership | None:
        return None if self._is_replaced else self.ownerships[0]


async def load_cluster_row(state: StateStore, kind: str, without: str) -> Row | None:
    """Return the only row of a kind; None if there is none. Raises StorageError.

    If the row is damaged, the error message has a command that removes it.
    """
    try:
        return (await state.load(kind)).get(CLUSTER)
    except DamagedRowsError as error:
        raise StorageError(f"{error}; `kgw log adopt` removes it, and {without}") from error
