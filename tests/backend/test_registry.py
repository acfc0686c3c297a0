from __future__ import annotations

import resource

import pytest

from kgw.backend.registry import file_limits


@pytest.mark.parametrize(
    ("descriptors", "expected"),
    [
        (256, (64, 32, 128)),
        (20_000, (1_250, 1_250, 2_500)),
        (1 << 20, (2_048, 2_048, 4_096)),
        (resource.RLIM_INFINITY, (2_048, 2_048, 4_096)),
    ],
)
def test_files_kept_open_follow_the_descriptors(
    monkeypatch: pytest.MonkeyPatch, descriptors: int, expected: tuple[int, int, int]
) -> None:
    """A sixteenth for each kind of segments that wait for a sync, and never very many."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (descriptors, descriptors))
    assert expected == file_limits()


def test_only_descriptors_that_can_be_had_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody raises the limit for an offline command, and some systems refuse it to a server."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 1 << 20))
    assert (256, 128, 512) == file_limits()
