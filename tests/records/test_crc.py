from __future__ import annotations

import importlib.machinery
import runpy
import subprocess
import sys
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING

import pytest

from kgw.records import crc
from kgw.records.crc import crc32c

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec


def test_the_polynomial_is_castagnolis() -> None:
    """RFC 3720's test vectors, whole and in parts; the package has the same function."""
    import crc32c as package

    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"56789", crc32c(b"1234")) == 0xE3069283
    assert crc32c(memoryview(bytearray(b"123456789"))) == package.crc32c(b"123456789")


@pytest.mark.slow
def test_its_import_brings_in_no_command_line() -> None:
    """The reason for importing the extension by itself, and it is used by all of kgw."""
    program = (
        "import sys, kgw.app, kgw.backend.embedded.backend, kgw.state.sql.sqlite\n"
        "print([name for name in ('crc32c', 'argparse', 'email') if name in sys.modules])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert ran.stdout.strip() == "[]"


@pytest.mark.parametrize("missing", ["crc32c", "crc32c._crc32c"])
def test_another_shape_of_the_package_is_imported_whole(
    monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    """Where the extension is not found, the package knows where it is."""

    class SomePaths:
        """Finds everything but one module."""

        @staticmethod
        def find_spec(name: str, path: Sequence[str] | None = None) -> ModuleSpec | None:
            return None if name == missing else PathFinder.find_spec(name, path)

    monkeypatch.setattr(importlib.machinery, "PathFinder", SomePaths)

    assert runpy.run_path(crc.__file__)["crc32c"](b"123456789") == 0xE3069283
