"""A cluster of two nodes whose keys are in two bundles, X and Y, each with an owner."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.config import Config, Listener, Node
from kgw.ownership.placement import Owner, Placement
from kgw.types import PartitionKey

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kgw.ownership.keys import Owned
    from kgw.state.base import StateStore

ONE, TWO = 1, 2
X, Y = "x", "y"


def bundle_of(owned: Owned) -> str:
    """X has the even partitions, and the groups and transactional ids whose names end in x."""
    if isinstance(owned, PartitionKey):
        return Y if owned.partition % 2 else X
    return X if owned.key.endswith("x") else Y


def is_in(bundle: str) -> Callable[[Owned], bool]:
    """Return the function that accepts the keys of a bundle."""
    return lambda owned: bundle_of(owned) == bundle


class Cluster:
    """The owner of each bundle, as both nodes know it."""

    def __init__(self) -> None:
        self.owners = {X: ONE, Y: ONE}
        self.version = 0
        self.nodes = [
            Node(number, {"PLAINTEXT": Listener("PLAINTEXT", f"node-{number}.example", 9092)})
            for number in (ONE, TWO)
        ]

    def move(self, bundle: str, node_id: int) -> None:
        """Give a bundle to a node."""
        self.owners[bundle] = node_id
        self.version += 1


class Side(Placement):
    """The cluster as one of its nodes sees it."""

    cluster_id = "two-nodes"

    def __init__(self, cluster: Cluster, node_id: int) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.bundles = [is_in(name) for name, owner in cluster.owners.items() if owner == node_id]

    async def open(self, state: StateStore, config: Config) -> Config:
        return config

    @property
    def version(self) -> int:
        return self.cluster.version

    @property
    def here(self) -> Node:
        return self.cluster.nodes[self.node_id - 1]

    def advertise(self, listeners: Mapping[str, Listener]) -> None:
        """The cluster knows already."""

    def replaced_by(self, node: Node | None) -> None:
        """Nobody replaces a node of this cluster."""

    @property
    def nodes(self) -> Sequence[Node]:
        return self.cluster.nodes

    @property
    def controller(self) -> Node:
        return self.cluster.nodes[0]

    def owner(self, owned: Owned) -> Owner:
        return Owner(self.cluster.nodes[self.cluster.owners[bundle_of(owned)] - 1], 0)
