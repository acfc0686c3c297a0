"""A package that is not installed."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest


def without_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the package that encrypts missing, as where only kgw is installed."""
    imported = builtins.__import__

    def missing(name: str, *arguments: Any) -> Any:
        if name.startswith("cryptography"):
            raise ModuleNotFoundError(f"No module named {name!r}", name="cryptography")
        return imported(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", missing)
