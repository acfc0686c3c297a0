"""Which kgw this is: the release, and the commit that it was built from."""

from __future__ import annotations

import sys
from pathlib import Path
from shlex import quote

from kgw import __version__

RECORD = Path(__file__).with_name("commit.txt")
"""Put into wheels and sdists by hatch_build.py; a checkout has none."""

CHECKOUT = "checkout"
"""Said in place of a commit where kgw runs from its sources, which may change at any time."""


def commit() -> str:
    """Return the commit that this was built from, or `checkout` for sources that were not built.

    `+changes` at its end means that the sources were not as they were committed; `unknown` that
    the build could not find out.
    """
    try:
        return RECORD.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return CHECKOUT


def full_version() -> str:
    """Return version and commit, as `kgw --version` tells them."""
    return f"{__version__} ({commit()})"


def install_command(extra: str) -> str:
    """Return the command that adds an extra to the kgw that runs.

    It names this Python: the first pip on PATH may be another environment's. The distribution is
    called `kgw-broker`, as `kgw` is another project's name on the package index.
    """
    return f"{quote(sys.executable or 'python')} -m pip install 'kgw-broker[{extra}]'"
