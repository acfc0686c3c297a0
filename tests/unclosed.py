"""Finds sockets that were left open: what nobody closes is only told of when it is collected."""

from __future__ import annotations

import gc
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def unclosed() -> Iterator[list[str]]:
    """Give a list that, once the block is over, names what was left open in it."""
    found: list[str] = []
    gc.collect()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        yield found
        gc.collect()
    found += [str(one.message) for one in caught if one.category is ResourceWarning]
