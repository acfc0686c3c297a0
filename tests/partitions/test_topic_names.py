from __future__ import annotations

import pytest

from kgw.partitions.topic_names import name_problem, unified_name


@pytest.mark.parametrize("name", ["a", "A-b_c.9", "x" * 249, "...", "_", "-"])
def test_legal_names(name: str) -> None:
    """Letters, digits, '.', '_' and '-', up to 249 of them."""
    assert name_problem(name) is None


@pytest.mark.parametrize(
    "name", ["", ".", "..", "x" * 250, "a b", "a/b", "../a", "a\0", "a\n", "é", "日本"]
)
def test_illegal_names(name: str) -> None:
    """Everything else, and what would be a place in a file system."""
    assert name_problem(name)


def test_names_that_collide() -> None:
    """'.' and '_' are the same in metric names."""
    assert unified_name("a.b_c") == unified_name("a_b.c")
    assert unified_name("a-b") != unified_name("a_b")
