"""Paths as text."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from kgw.config.paths import absolute_path


@given(st.lists(st.sampled_from(["a", "..", ".", "", "b c", "é"])).map("/".join))
def test_is_what_pathlib_makes_of_it(path: str) -> None:
    """A path from the root on is the one that pathlib makes."""
    expected = str(Path(path).absolute())
    # POSIX leaves two slashes at the very beginning to the system; on Linux they are one.
    assert expected.replace("//", "/") == absolute_path(path)
    assert expected.replace("//", "/") == absolute_path(Path(path))
