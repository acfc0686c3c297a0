"""Environments that have an extra's packages and no others, without a network.

They are made of links to what is installed here: whatever the extra forgets is missing there, as in
an environment of a user. scripts/package installs the wheel in place of this.
"""

from __future__ import annotations

from importlib.metadata import Distribution, distribution
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.packages.environments import Environment

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

KGW = "kgw-broker"

_COMMAND = """\
#!{folder}/bin/python
from kgw.__main__ import run

run()
"""


class LinkedEnvironment(Environment):
    """A virtual environment with some packages, and no others."""

    def __init__(self, folder: Path, installed: Iterable[Distribution], *, path: str = "") -> None:
        """Make it. The command `kgw` is there where kgw is."""
        super().__init__(folder, path=path, has_pip=False)
        (packages,) = folder.glob("lib/python*/site-packages")
        for one in installed:
            _link(one, packages)
            if one.name == KGW:
                command = folder / "bin" / "kgw"
                command.write_text(_COMMAND.format(folder=folder))
                command.chmod(0o755)


def needed(name: str, extra: str = "") -> list[Distribution]:
    """Return what `pip install 'NAME[EXTRA]'` would bring, NAME itself among it.

    PackageNotFoundError where some of it is not installed here.
    """
    found: dict[str, Distribution] = {}
    waiting, seen = [(name, ""), (name, extra)], set()
    while waiting:
        one = waiting.pop()
        if one in seen:
            continue
        seen.add(one)
        of, wanted = one
        found.setdefault(of, distribution(of))
        for text in found[of].requires or []:
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": wanted}):
                other = canonicalize_name(requirement.name)
                waiting += [(other, also) for also in ("", *requirement.extras)]
    return list(found.values())


def _link(one: Distribution, packages: Path) -> None:
    for file in one.files or []:
        # Programs and manual pages lie outside.
        if ".." in file.parts:
            continue
        target = packages / file
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            target.symlink_to(str(file.locate()))
