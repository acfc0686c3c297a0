"""What the endpoints look at."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kgw.gateway import Gateway


class View:
    """The gateway, and whether the process is about to end."""

    __slots__ = ("gateway", "is_stopping")

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.is_stopping = False
