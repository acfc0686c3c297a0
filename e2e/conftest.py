"""Client libraries in processes of their own, and gateways for them."""

from __future__ import annotations

from e2e.beside_kafka import kafka, one_node
from tests.interop.libraries import backend, clients, gateway, new_gateway, own_gateway

__all__ = ["backend", "clients", "gateway", "kafka", "new_gateway", "one_node", "own_gateway"]
