from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from kgw.backend.seaweedmq.channel.volumes import JOINED_BYTES, VolumeLocation, numbered, runs


@given(
    sizes=st.lists(st.sampled_from([0, 1, 1000, JOINED_BYTES - 1, JOINED_BYTES, 2 * JOINED_BYTES]))
)
def test_an_upload_is_the_same_bytes_in_fewer_pieces(sizes: list[int]) -> None:
    """No two neighbours could be joined still, and what is large is not copied."""
    pieces = [bytes([number % 256]) * size for number, size in enumerate(sizes)]
    sent = list(runs(pieces))
    assert b"".join(pieces) == b"".join(sent)
    assert all(len(one) + len(next_) > JOINED_BYTES for one, next_ in itertools.pairwise(sent))
    large = [id(piece) for piece in pieces if len(piece) > JOINED_BYTES]
    assert large == [id(piece) for piece in sent if len(piece) > JOINED_BYTES]


def test_a_volume_server_is_told_by_its_grpc_port() -> None:
    """One that does not say it follows SeaweedFS's rule."""
    assert "host:99" == VolumeLocation("host:8080", 99).grpc_target
    assert "host:18080" == VolumeLocation("host:8080", 0).grpc_target


def test_file_ids_are_spelled_out_as_seaweedfs_writes_them() -> None:
    """In whole bytes, without zeros before; an upload names the first one and a number."""
    assert [("3,fe01c0ffee", "3,fe01c0ffee"), ("3,ff01c0ffee", "3,fe01c0ffee_1")] == list(
        numbered("3,fe01c0ffee", 2)
    )
    assert ("3,010001c0ffee", "3,fe01c0ffee_2") == list(numbered("3,fe01c0ffee", 3))[2]
