"""Circles of who has read from whom."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

NodeT = TypeVar("NodeT")


def circles(edges: Mapping[NodeT, Collection[NodeT]]) -> list[list[NodeT]]:
    """Return the strongly connected components of more than one node (Tarjan's algorithm).

    `edges` says where the edges of each node lead to. Linear, and without recursion.
    """
    found: list[list[NodeT]] = []
    reached: dict[NodeT, int] = {}
    lowest: dict[NodeT, int] = {}
    open_nodes: dict[NodeT, None] = {}
    for start in edges:
        if start in reached:
            continue
        way: list[tuple[NodeT, Iterator[NodeT]]] = []
        node: NodeT | None = start
        while node is not None or way:
            if node is not None:
                reached[node] = lowest[node] = len(reached)
                open_nodes[node] = None
                way.append((node, iter(edges.get(node, ()))))
            node = None
            here, ahead = way[-1]
            for neighbour in ahead:
                if neighbour not in reached:
                    node = neighbour
                    break
                if neighbour in open_nodes:
                    lowest[here] = min(lowest[here], reached[neighbour])
            if node is not None:
                continue
            way.pop()
            if way:
                lowest[way[-1][0]] = min(lowest[way[-1][0]], lowest[here])
            if lowest[here] == reached[here]:
                component: list[NodeT] = []
                while not component or component[-1] != here:
                    component.append(open_nodes.popitem()[0])
                if len(component) > 1:
                    found.append(component[::-1])
    return found
