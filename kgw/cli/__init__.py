"""The `kgw` command."""

from kgw.cli.main import main

__all__ = ["main"]
