"""Client libraries in processes of their own, and gateways for them."""

from __future__ import annotations

from tests.interop.libraries import backend, clients, gateway, new_gateway, own_gateway

__all__ = ["backend", "clients", "gateway", "new_gateway", "own_gateway"]
