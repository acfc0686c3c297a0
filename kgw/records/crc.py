"""CRC-32C, computed by the processor: the checksum of record batches and of kgw's own files.

The crc32c package looks up its version and builds a command line whenever it is imported, which
imports e-mail parsing and argparse: 20 ms of a start. So its extension module is imported directly,
and the package only if that fails.
"""

from __future__ import annotations

from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import TYPE_CHECKING, Any, Final

__all__ = ["GIVE_UP_GIL", "KEEP_GIL", "crc32c"]

KEEP_GIL: Final = 0
"""Mode for up to some megabytes while an event loop runs: `crc32c(data, before, KEEP_GIL)`.

By default the extension releases the interpreter lock for 32 KB and more, whose checksum takes 1.4
us; getting the lock back from a busy loop takes a thread 0.2 to 0.5 ms, sixteen times for a
megabyte of batches.
"""
GIVE_UP_GIL: Final = 1
"""Mode for larger data, in a thread: the checksum of 100 MB takes 4 ms."""

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
            # The package is installed in an unusual way, so the extension module was not found.
            import crc32c as module
        return module

    crc32c = _import_extension().crc32c
