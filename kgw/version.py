"""The version of kgw, and the commit from which it was built."""

from __future__ import annotations

import sys
from pathlib import Path
from shlex import quote

from kgw import __version__

RECORD = Path(__file__).with_name("commit.txt")
"""The file that hatch_build.py adds to wheels and sdists; a checkout has none."""

CHECKOUT = "checkout"
"""Shown instead of a commit if kgw runs from its sources, which may change at any time."""


def commit() -> str:
    """Return the commit from which kgw was built, or `checkout` if it runs from its sources.

    A commit ends with `+changes` if the sources had changes that were not committed. The result is
    `unknown` if the build could not find out the commit.
    """
    try:
        return RECORD.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return CHECKOUT


def full_version() -> str:
    """Return version and commit, as `kgw --version` prints them."""
    return f"{__version__} ({commit()})"


def install_command(extra: str) -> str:
    """Return the command that installs an extra into the running kgw's environment.

    It names this Python: the first pip on PATH may be another environment's. The distribution is
    called `kgw-broker`, as `kgw` is another project's name on the package index.
    """
    return f"{quote(sys.executable or 'python')} -m pip install 'kgw-broker[{extra}]'"
