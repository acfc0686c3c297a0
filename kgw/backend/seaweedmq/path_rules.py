"""The filer's rules by path, and checks for rules that kgw cannot work with. Pure.

Most rules are made by `fs.configure`; `remote.mount` makes rules for a directory in another
storage. A rule applies to every path that begins with its prefix. If several rules apply, the value
of the longest prefix counts. (Facts: SeaweedFS, weed/filer/filer_conf.go and remote_storage.go.)
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kgw.errors import CorruptionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

RULES_DIRECTORY: Final = "/etc/seaweedfs"
RULES_NAME: Final = "filer.conf"
MOUNTS_DIRECTORY: Final = "/etc/remote"
MOUNTS_NAME: Final = "mount.mapping"

LEAST_NAME: Final = 64
"""Names of this length must be allowed. kgw's own names have up to 40 characters."""


class PathRule(NamedTuple):
    """A rule. Empty values are not set, so the value of a shorter prefix applies."""

    prefix: str
    ttl: str = ""
    is_read_only: bool = False
    longest_name: int = 0
    keeps_chunks: bool = False
    """Whether the chunks of removed files stay (`-disableChunkDeletion`)."""
    is_worm: bool = False
    """Whether written files can be neither changed nor removed."""
    is_remote: bool = False
    """Whether another storage is mounted at the path (`remote.mount`)."""
    replication: str = ""
    places: tuple[str, ...] = ()
    """The names of the rule's options for new chunks, such as collection or replication."""


_PLACES: Final = {
    "collection": "collection",
    "replication": "replication",
    "diskType": "disk",
    "fsync": "fsync",
    "dataCenter": "dataCenter",
    "rack": "rack",
    "dataNode": "dataNode",
}
"""The options of `fs.configure` by the names of the fields that they set."""


def read_rules(content: bytes) -> tuple[PathRule, ...]:
    """Return the rules in `/etc/seaweedfs/filer.conf`, which is protobuf's JSON.

    Raises CorruptionError.
    """
    try:
        document = json.loads(content) if content.strip() else {}
        return tuple(_rule(row) for row in document.get("locations") or ())
    except (ValueError, TypeError, AttributeError) as error:
        raise CorruptionError(
            f"{RULES_DIRECTORY}/{RULES_NAME} cannot be understood: {error}; see fs.configure in "
            "weed shell"
        ) from error


def _rule(row: dict[str, Any]) -> PathRule:
    return PathRule(
        str(_value(row, "locationPrefix") or ""),
        str(_value(row, "ttl") or ""),
        bool(_value(row, "readOnly")),
        int(_value(row, "maxFileNameLength") or 0),
        bool(_value(row, "disableChunkDeletion")),
        bool(_value(row, "worm")),
        False,
        str(_value(row, "replication") or ""),
        tuple(option for field, option in _PLACES.items() if _value(row, field)),
    )


def _value(row: dict[str, Any], name: str) -> Any:
    """Return a field by either of the two names that protobuf's JSON allows for it."""
    snake = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
    return row.get(name, row.get(snake))


def effective(rules: Iterable[PathRule], path: str) -> PathRule:
    """Return the combined rule for a path, with the longest matching prefix."""
    found = PathRule("")
    for rule in sorted(rules, key=lambda rule: len(rule.prefix)):
        if path.startswith(rule.prefix):
            places = tuple(dict.fromkeys((*found.places, *rule.places)))
            set_fields = {name: value for name, value in rule._asdict().items() if value}
            found = found._replace(**set_fields)._replace(prefix=rule.prefix, places=places)
    return found


def forbidden(rules: Sequence[PathRule], directories: Iterable[str]) -> str | None:
    """Return why kgw cannot write below these directories; None if it can."""
    for path, rule in _effective_below(rules, directories):
        if _expires(rule.ttl):
            return (
                f"a rule of the filer lets what is stored in {path} expire (fs.configure "
                f"-locationPrefix={rule.prefix}, ttl {rule.ttl}): acknowledged records would be "
                "deleted. Take the TTL from it, and have retention.ms delete records"
            )
        if rule.is_read_only:
            return (
                f"a rule of the filer makes {path} read-only (fs.configure "
                f"-locationPrefix={rule.prefix}, readOnly): nothing can be stored. Take that from "
                "it"
            )
        if rule.is_worm:
            return (
                f"a rule of the filer forbids to change or remove what is in {path} (fs.configure "
                f"-locationPrefix={rule.prefix}, worm): an append changes its file, and retention "
                "removes files. Take that from it"
            )
        if rule.is_remote:
            return (
                f"another storage is mounted at {rule.prefix.rstrip('/')} (remote.mount): what "
                f"keeps it the same as {path} changes entries behind kgw's back, and acknowledged "
                "records could be lost. Unmount it (remote.unmount)"
            )
        if 0 < rule.longest_name < LEAST_NAME:
            return (
                f"a rule of the filer allows names of {rule.longest_name} characters in {path} "
                f"(fs.configure -locationPrefix={rule.prefix}, maxFileNameLength): kgw needs "
                f"{LEAST_NAME}, and the longest name of a topic has 249"
            )
    return None


def expiry(rules: Sequence[PathRule], directories: Iterable[str]) -> str | None:
    """Return a TTL that applies to a path below these directories, or None."""
    found = (rule.ttl for _, rule in _effective_below(rules, directories))
    return next((ttl for ttl in found if _expires(ttl)), None)


def unheeded(rules: Sequence[PathRule], directories: Iterable[str], chunks: str) -> list[str]:
    """Return warnings about harmless rules that may not have the intended effect.

    `chunks` is the path in kgw's requests for file ids.
    """
    found = []
    for path, rule in _effective_below(rules, directories):
        if rule.keeps_chunks:
            found.append(
                f"a rule of the filer keeps the chunks of what is removed in {path} (fs.configure "
                f"-locationPrefix={rule.prefix}, disableChunkDeletion): retention and compaction "
                "make no room"
            )
        own = next(one for one in rules if one.prefix == rule.prefix)
        if own.places and not chunks.startswith(rule.prefix):
            found.append(
                f"a rule of the filer for {rule.prefix} is not obeyed ({', '.join(own.places)}): "
                f"chunks get their places by the rules for {chunks}"
            )
    return found


def _effective_below(
    rules: Sequence[PathRule], directories: Iterable[str]
) -> list[tuple[str, PathRule]]:
    """Return the paths at and below the directories, each with its combined rule."""
    found = {}
    for directory in directories:
        paths = [directory, *(one.prefix for one in rules if one.prefix.startswith(directory))]
        for path in paths:
            rule = effective(rules, path)
            if rule.prefix:
                found[rule] = path
    return [(path, rule) for rule, path in found.items()]


def _expires(ttl: str) -> bool:
    """Return whether a TTL like `7d` takes effect: SeaweedFS ignores one that it cannot read."""
    digits = ttl if ttl[-1:].isdigit() else ttl[:-1]
    return digits.isascii() and digits.isdigit() and int(digits) > 0
