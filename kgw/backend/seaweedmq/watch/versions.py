"""Decides which versions of SeaweedFS are reliable. Pure.

A test cannot prove that a filer makes conditional updates under a lock. In 500 races of four
writers at a filer of version 4.40, two writers succeeded 73 times over four connections and 4 times
over one connection. From 4.41 on there is a lock (0 of 500).
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

FENCED: Final = (4, 41)
"""The first version whose filer takes a lock for a conditional update."""
TRIED: Final = (4, 48)
"""The version that kgw is tested with. 4.44 was seen to hang."""
_VERSION: Final = re.compile(r"\b(\d+)\.(\d+)")


class VersionVerdict(NamedTuple):
    """Whether a filer's version is reliable."""

    text: str
    is_sound: bool = False
    is_refused: bool = False
    """Whether a gateway refuses to start with this version."""


def judge_version(said: str) -> VersionVerdict:
    """Return the assessment of a filer's version, such as `8000GB 4.48 pypi`.

    An unreadable version, for example of a fork, is not refused, because it is no sign of a fault.
    """
    found = _VERSION.search(said)
    if found is None:
        return VersionVerdict(
            f"the filer says {said!r} of its version: kgw is tried with {_text(TRIED)}, and needs "
            f"{_text(FENCED)} or later, whose conditional updates exclude each other. Make sure "
            "that this one is made of it"
        )
    version = int(found[1]), int(found[2])
    if version < FENCED:
        return VersionVerdict(
            f"SeaweedFS {said}: before {_text(FENCED)} the filer takes no lock for a conditional "
            "update, so that two gateways could write to one partition; install "
            f"{_text(TRIED)} or later",
            is_refused=True,
        )
    if version < TRIED:
        return VersionVerdict(
            f"SeaweedFS {said}: kgw is tried with {_text(TRIED)}, and 4.44 was seen to hang; "
            f"install {_text(TRIED)} or later"
        )
    return VersionVerdict(f"SeaweedFS {said}", is_sound=True)


def _text(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]:02d}"
