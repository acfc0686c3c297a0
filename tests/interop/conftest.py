"""Client libraries in processes of their own, and gateways for them."""

from __future__ import annotations

from tests.interop.libraries import clients, gateway, own_gateway

__all__ = ["clients", "gateway", "own_gateway"]
