"""What a start imports before the first listener is open: a list, so that growth is noticed.

Modules are most of a start, and of an idle gateway's memory. A change that makes this test fail
imports later what a start does not need, or writes the list anew and says why:

    python -m tests.app.test_start_imports > tests/app/start_modules.txt
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from kgw import app

LIST = Path(__file__).with_name("start_modules.txt")
PROGRAM = """
import os, sys
from kgw.cli.main import main
from kgw.server import announcement

def announce(*_, **__):
    sys.stdout.write(" ".join(sys.modules))
    sys.stdout.flush()
    os._exit(0)

announcement.announce = announce
main(["serve", "--data-dir", sys.argv[1], "--listen", "127.0.0.1:0"])
"""

SOON = """
import os, sys
from kgw import app
from kgw.cli.main import main
from kgw.server import announcement

import_modules = app._import_modules

def announce():
    import_modules()
    sys.stdout.write(" ".join(sys.modules))
    sys.stdout.flush()
    os._exit(0)

announcement.announce = lambda *_, **__: None
app._import_modules = announce
main(["serve", "--data-dir", sys.argv[1], "--listen", "127.0.0.1:0"])
"""


def imported_at_start() -> set[str]:
    """Modules of kgw, and the packages of others, the standard library's among them."""
    with tempfile.TemporaryDirectory() as data_dir:
        said = subprocess.check_output([sys.executable, "-c", PROGRAM, data_dir], text=True)
    # Names with an underscore are parts of the interpreter or of compiled packages.
    names = {name if name.startswith("kgw") else name.split(".")[0] for name in said.split()}
    return {name for name in names if not name.startswith("_")} - {"cython_runtime"}


@pytest.mark.slow
def test_a_start_imports_no_more_than_the_list_says() -> None:
    """A module that is new here delays every start, and stays in memory."""
    imported = imported_at_start()
    if sys.version_info[:2] != (3, 11):
        # Each Python has other parts of its library import each other.
        imported -= sys.stdlib_module_names

    assert imported <= set(LIST.read_text().split())


@pytest.mark.slow
def test_the_rest_is_imported_soon_after_the_start(tmp_path: Path) -> None:
    """What producers and consumers need is there before they ask; what few ask for is not."""
    said = subprocess.check_output([sys.executable, "-c", SOON, str(tmp_path)], text=True)

    assert set() == {*app.IMPORTED_SOON} - {*said.split()}
    assert set() == {*said.split()} & {
        "kgw.handlers.authorized_operations",
        "kgw.handlers.list_transactions",
        "kgw.handlers.write_txn_markers",
        "kgw.transactions.coordinator",
    }


if __name__ == "__main__":
    print("\n".join(sorted(imported_at_start())))
