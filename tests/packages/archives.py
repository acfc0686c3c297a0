"""What is in a wheel and an sdist, what should be, and how two of them differ."""

from __future__ import annotations

import hashlib
import re
import tarfile
from email.parser import Parser
from typing import TYPE_CHECKING, NamedTuple
from zipfile import ZipFile

if TYPE_CHECKING:
    from collections.abc import Iterable
    from email.message import Message
    from pathlib import Path

OF_TESTS_ALONE = re.compile(r"(^|/)(tests?|conftest\.py|bench|fuzz|e2e|docs|examples)(/|$)")
LEFT_BEHIND = re.compile(
    r"(^|/)(__pycache__|\.cache|\.venv[^/]*|\.git|kgw-data|\.[a-z]+_cache)(/|$)|\.py[co]$"
)
NEEDED_IN_A_WHEEL = (
    r"kgw/py\.typed",
    r"kgw/commit\.txt",
    r"kgw/backend/seaweedmq/protos/filer_pb2\.py",
    r"kgw/backend/seaweedmq/protos/filer_pb2\.pyi",
    r"kgw/backend/seaweedmq/protos/filer_pb2_grpc\.py",
    r"kgw_broker-[^/]+\.data/data/share/man/man1/kgw\.1",
    r"kgw_broker-[^/]+\.dist-info/licenses/LICENSE",
    r"kgw_broker-[^/]+\.dist-info/sboms/kgw\.cdx\.json",
    r"kgw_broker-[^/]+\.dist-info/entry_points\.txt",
)
NEEDED_IN_AN_SDIST = (
    r"kgw_broker-[^/]+/kgw/(py\.typed|backend/seaweedmq/protos/filer\.proto)",
    r"kgw_broker-[^/]+/commit\.txt",
    r"kgw_broker-[^/]+/(LICENSE|README\.md|CHANGELOG\.md|pyproject\.toml|hatch_build\.py|PKG-INFO)",
    r"kgw_broker-[^/]+/requirements/kgw\.cdx\.json",
    r"kgw_broker-[^/]+/docs/reference/kgw\.1",
    r"kgw_broker-[^/]+/tests/conftest\.py",
)
MUST_SAY = ("Name", "Version", "Summary", "License-Expression", "Requires-Python", "Keywords")


class Member(NamedTuple):
    """A file of an archive."""

    digest: str
    mode: int
    time: object


def members(archive: Path) -> dict[str, Member]:
    """Return every file by its name."""
    if archive.suffix == ".whl":
        with ZipFile(archive) as wheel:
            return {
                one.filename: Member(
                    _digest(wheel.read(one)), one.external_attr >> 16, one.date_time
                )
                for one in wheel.infolist()
            }
    found = {}
    with tarfile.open(archive) as sdist:
        for one in sdist:
            file = sdist.extractfile(one)
            found[one.name] = Member(_digest(file.read() if file else b""), one.mode, one.mtime)
    return found


def differences(one: Path, other: Path) -> list[str]:
    """Return how two archives differ: by file where that says it all; [] for equal bytes."""
    if one.read_bytes() == other.read_bytes():
        return []
    here, there = members(one), members(other)
    found = [
        f"{name}: {here.get(name)} and {there.get(name)}"
        for name in sorted(here.keys() | there.keys())
        if here.get(name) != there.get(name)
    ]
    return found or ["the same files, packed in another way"]


def faults_of_wheel(wheel: Path) -> list[str]:
    """Return what is missing or does not belong there."""
    names = members(wheel)
    return [
        *_missing(names, NEEDED_IN_A_WHEEL),
        *_unwanted(names),
        *(f"is neither kgw nor about it: {name}" for name in names if name[:3] != "kgw"),
    ]


def faults_of_sdist(sdist: Path) -> list[str]:
    """Return what is missing or does not belong there."""
    names = members(sdist)
    return [
        *_missing(names, NEEDED_IN_AN_SDIST),
        *(f"left behind by something: {name}" for name in names if LEFT_BEHIND.search(name)),
    ]


def metadata(wheel: Path) -> Message:
    """Return a wheel's METADATA."""
    with ZipFile(wheel) as archive:
        (name,) = (one for one in archive.namelist() if one.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


def faults_of_metadata(said: Message) -> list[str]:
    """Return what an index or a person would miss."""
    text = said.get_payload()
    assert isinstance(text, str)
    local = re.findall(r"\]\((?![a-z]+:)[^)]*\)", text)
    return [
        *(f"does not say {name}" for name in MUST_SAY if not said.get(name)),
        *(f"a link that leads nowhere on an index: {link}" for link in local),
        *([] if text.startswith("# kgw") else ["the description is not the README"]),
        *(
            []
            if "Typing :: Typed" in said.get_all("Classifier", [])
            else ["the classifiers do not say that it is typed"]
        ),
    ]


def digest(path: Path) -> str:
    """Return a file's SHA-256."""
    return _digest(path.read_bytes())


def _missing(names: Iterable[str], needed: Iterable[str]) -> list[str]:
    return [
        f"is not there: {pattern}"
        for pattern in needed
        if not any(re.fullmatch(pattern, name) for name in names)
    ]


def _unwanted(names: Iterable[str]) -> list[str]:
    return [
        f"does not belong there: {name}"
        for name in names
        if LEFT_BEHIND.search(name) or OF_TESTS_ALONE.search(name)
    ]


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
