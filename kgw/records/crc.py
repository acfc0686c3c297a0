"""CRC-32C, computed by the processor: what record batches carry, and our own small files too.

The crc32c package looks up its version and builds a command line whenever it is imported, which
brings in e-mail parsing and argparse: 20 ms of a start. So its extension module is imported by
itself, and the package only where that does not work.
"""

from __future__ import annotations

from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import TYPE_CHECKING, Any, Final

__all__ = ["GIVE_UP_GIL", "KEEP_GIL", "crc32c"]

KEEP_GIL: Final = 0
"""`crc32c(data, before, KEEP_GIL)` for up to some megabytes, where an event loop runs beside.

By itself the extension gives up the interpreter for 32 KB and more, which take it 1.4 us; to get it
back from a busy loop takes a thread 0.2 to 0.5 ms, sixteen times for a megabyte of batches.
"""
GIVE_UP_GIL: Final = 1
"""The same for what may be larger, in a thread: 100 MB take 4 ms."""

if TYPE_CHECKING:
    from crc32c import crc32c
else:

    def _import_extension() -> Any:
        try:
            folders = PathFinder.find_spec("crc32c").submodule_search_locations
            spec = PathFinder.find_spec("crc32c._crc32c", folders)
            module = module_from_spec(spec)
            spec.loader.exec_module(module)
        except AttributeError:
            # An installation of another shape: something was not found.
            import crc32c as module
        return module

    crc32c = _import_extension().crc32c
