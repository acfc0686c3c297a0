from __future__ import annotations

import json

import pytest

from kgw.backend.seaweedmq.path_rules import PathRule, effective, forbidden, read_rules, unheeded
from kgw.errors import CorruptionError

OURS = ("/topics/kafka/", "/topics/.kgw/kafka/")

# As SeaweedFS 4.48 writes it, with every field.
WRITTEN = b"""{
  "version":  1,
  "locations":  [
    {
      "locationPrefix":  "/buckets/",
      "collection":  "",
      "replication":  "",
      "ttl":  "3d",
      "diskType":  "",
      "fsync":  false,
      "volumeGrowthCount":  0,
      "readOnly":  false,
      "dataCenter":  "",
      "rack":  "",
      "dataNode":  "",
      "maxFileNameLength":  0,
      "disableChunkDeletion":  false,
      "wormGracePeriodSeconds":  "0",
      "wormRetentionTimeSeconds":  "0"
    },
    {
      "locationPrefix":  "/topics/kafka/",
      "collection":  "ruled",
      "replication":  "",
      "ttl":  "",
      "diskType":  "hdd",
      "fsync":  true,
      "volumeGrowthCount":  2,
      "readOnly":  false,
      "dataCenter":  "",
      "rack":  "",
      "dataNode":  "",
      "maxFileNameLength":  0,
      "disableChunkDeletion":  false,
      "wormGracePeriodSeconds":  "0",
      "wormRetentionTimeSeconds":  "0"
    },
    {
      "locationPrefix":  "/topics/ro/",
      "collection":  "",
      "replication":  "",
      "ttl":  "",
      "diskType":  "",
      "fsync":  false,
      "volumeGrowthCount":  0,
      "readOnly":  true,
      "dataCenter":  "",
      "rack":  "",
      "dataNode":  "",
      "maxFileNameLength":  0,
      "disableChunkDeletion":  false,
      "wormGracePeriodSeconds":  "0",
      "wormRetentionTimeSeconds":  "0"
    },
    {
      "locationPrefix":  "/topics/worm/",
      "collection":  "",
      "replication":  "",
      "ttl":  "",
      "diskType":  "",
      "fsync":  false,
      "volumeGrowthCount":  0,
      "readOnly":  false,
      "dataCenter":  "",
      "rack":  "",
      "dataNode":  "",
      "maxFileNameLength":  0,
      "disableChunkDeletion":  false,
      "worm":  true,
      "wormGracePeriodSeconds":  "0",
      "wormRetentionTimeSeconds":  "0"
    }
  ]
}"""


def test_what_seaweedfs_has_written_is_read() -> None:
    """Fields that are not set are empty there, and say nothing."""
    expected = (
        PathRule("/buckets/", ttl="3d"),
        PathRule("/topics/kafka/", places=("collection", "disk", "fsync")),
    )
    assert expected == tuple(
        sorted(one for one in read_rules(WRITTEN) if one.prefix in {"/buckets/", "/topics/kafka/"})
    )


def test_both_spellings_of_a_field_are_read() -> None:
    """Protobuf's JSON has two, and people write the file by hand."""
    row = {"location_prefix": "/a/", "read_only": True, "max_file_name_length": 12, "worm": True}
    (rule,) = read_rules(json.dumps({"locations": [row]}).encode())
    assert PathRule("/a/", is_read_only=True, longest_name=12, is_worm=True) == rule


@pytest.mark.parametrize("content", [b"", b" \n", b"{}", b'{"version": 1}'])
def test_a_filer_without_rules_has_none(content: bytes) -> None:
    """Nor has one whose rules were all taken away."""
    assert () == read_rules(content)


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"locations": [1]}', b'{"locations": 3}'])
def test_what_cannot_be_understood_is_an_error(content: bytes) -> None:
    """It is never taken for no rules at all."""
    with pytest.raises(CorruptionError, match=r"/etc/seaweedfs/filer\.conf cannot be understood"):
        read_rules(content)


def test_a_longer_prefix_goes_before_a_shorter_one() -> None:
    """Value by value; a flag that is set stays set, as in SeaweedFS."""
    rules = [
        PathRule("/topics/kafka/", ttl="0m", places=("collection",)),
        PathRule("/topics/", ttl="7d", is_read_only=True, longest_name=99, places=("fsync",)),
    ]
    assert PathRule(
        "/topics/kafka/",
        ttl="0m",
        is_read_only=True,
        longest_name=99,
        places=("fsync", "collection"),
    ) == effective(rules, "/topics/kafka/t")
    assert PathRule("") == effective(rules, "/buckets/")


@pytest.mark.parametrize(
    ("ttl", "expires"),
    [
        ("7d", True),
        ("3", True),
        ("1y", True),
        ("", False),
        ("0d", False),
        ("d", False),
        ("x7", False),
    ],
)
def test_a_ttl_of_nothing_is_none(ttl: str, expires: bool) -> None:
    """As SeaweedFS reads it: what it cannot read is none."""
    assert expires == (forbidden([PathRule("/", ttl=ttl)], OURS) is not None)


def test_a_ttl_may_be_taken_back_below() -> None:
    """Where all of kgw's directories are below a rule without one."""
    rules = [PathRule("/topics/", ttl="7d"), PathRule("/topics/kafka/", ttl="0m")]
    assert "/topics/.kgw/kafka/ expire" in str(forbidden(rules, OURS))
    assert forbidden([*rules, PathRule("/topics/.kgw/", ttl="0m")], OURS) is None


def test_a_prefix_is_no_directory() -> None:
    """What begins with it is meant: the rule of `kaf` is one for `kafka`."""
    assert forbidden([PathRule("/topics/kaf", ttl="7d")], OURS) is not None
    assert forbidden([PathRule("/topics/kafka2", ttl="7d")], OURS) is None


def test_what_is_not_obeyed_is_said() -> None:
    """Places for chunks are asked for the namespace, not for each topic."""
    rules = [
        PathRule("/topics/", places=("collection",)),
        PathRule("/topics/kafka/orders/", places=("replication",)),
        PathRule("/topics/kafka/hours/", longest_name=200),
        PathRule("/buckets/", places=("replication",)),
    ]
    (found,) = unheeded(rules, OURS, "/topics/kafka/")
    assert found == (
        "a rule of the filer for /topics/kafka/orders/ is not obeyed (replication): chunks get "
        "their places by the rules for /topics/kafka/"
    )
    kept = [PathRule("/topics/", keeps_chunks=True)]
    (of_all,) = unheeded(kept, OURS, "/topics/kafka/")
    assert "retention and compaction make no room" in of_all
