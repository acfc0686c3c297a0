"""CRC-32C, computed by the processor: what record batches carry, and our own small files too.

The crc32c package looks up its version and builds a command line whenever it is imported, which
brings in e-mail parsing and argparse: 20 ms of a start that has 300. So its extension module is
imported by itself, and the package only where that does not work.
"""

from __future__ import annotations

import sys
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
        name = "crc32c._crc32c"
        if name in sys.modules:
            return sys.modules[name]
        package = PathFinder.find_spec("crc32c")
        folders = None if package is None else package.submodule_search_locations
        spec = None if folders is None else PathFinder.find_spec(name, folders)
        if spec is None or spec.loader is None:
            # An installation of another shape.
            import crc32c as whole_package

            return whole_package
        module = module_from_spec(spec)
        # The import system's own way of making a module known before it runs.
        sys.modules[name] = module
        spec.loader.exec_module(module)
        return module

    crc32c = _import_extension().crc32c
