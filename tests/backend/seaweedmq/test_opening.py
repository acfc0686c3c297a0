"""Tools hold a namespace: what keeps them from it, and what has come when they are done."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

import pytest

from kgw.backend.seaweedmq.filer import FilerError
from kgw.backend.seaweedmq.offline.opening import holding
from kgw.backend.seaweedmq.path_rules import PathRule
from kgw.errors import CorruptionError, DataDirectoryError
from kgw.testing.filer import CallKind, MemoryFiler
from tests.backend.seaweedmq.namespaces import Filers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kgw.backend.seaweedmq.offline.opening import Namespace

URL = "seaweedmq://memory:8888/kafka"
TTL = (PathRule("/topics/kafka/", ttl="7d"),)
CHANGES = (CallKind.CREATE, CallKind.UPDATE, CallKind.PUT)


@pytest.fixture
async def namespace() -> AsyncIterator[Namespace]:
    """Reach one."""
    made = Filers().namespace()
    await made.filer.open()
    async with aclosing(made.filer):
        yield made


def filer_of(namespace: Namespace) -> MemoryFiler:
    """Return the filer in memory."""
    assert isinstance(namespace.filer, MemoryFiler)
    return namespace.filer


async def test_who_writes_is_refused_where_a_rule_forbids_it(namespace: Namespace) -> None:
    """All that a copy wrote would expire."""
    filer = filer_of(namespace)
    filer.path_rules = TTL
    with pytest.raises(DataDirectoryError, match="ttl 7d"):
        async with holding(namespace, URL, writes=True):
            pytest.fail("it is held")
    assert 0 == filer.count(*CHANGES)


async def test_who_reads_is_not_kept_from_it_by_a_rule(namespace: Namespace) -> None:
    """It may take away what would expire."""
    filer_of(namespace).path_rules = TTL
    held = False
    async with holding(namespace, URL, writes=False):
        held = True
    assert held


async def test_rules_that_cannot_be_read_are_told(namespace: Namespace) -> None:
    """Nobody knows what would become of what is written."""

    class _Silent(MemoryFiler):
        async def rules(self) -> tuple[PathRule, ...]:
            raise FilerError("the filer cannot be reached")

    filer = _Silent(filer_of(namespace).store)
    await filer.open()
    with pytest.raises(DataDirectoryError, match="rules by path are unknown: the filer cannot"):
        async with holding(namespace._replace(filer=filer), URL, writes=True):
            pytest.fail("it is held")


async def test_a_rule_that_comes_meanwhile_is_told_at_the_end(namespace: Namespace) -> None:
    """No success is reported for what expires."""
    filer = filer_of(namespace)
    with pytest.raises(DataDirectoryError, match=f"written to {URL} may be lost: .*ttl 7d"):
        async with holding(namespace, URL, writes=True):
            filer.path_rules = TTL


async def test_a_filer_that_comes_meanwhile_is_told_at_the_end(namespace: Namespace) -> None:
    """It may take back what was written."""
    filer = filer_of(namespace)
    with pytest.raises(DataDirectoryError, match=f"written to {URL} may be lost: .*2 filers"):
        async with holding(namespace, URL, writes=True):
            filer.addresses.append("other:8888")


async def test_what_has_failed_says_so_itself(namespace: Namespace) -> None:
    """Whatever has come meanwhile."""
    filer = filer_of(namespace)

    async def fail() -> None:
        async with holding(namespace, URL, writes=True):
            filer.path_rules = TTL
            raise CorruptionError("damaged")

    with pytest.raises(CorruptionError, match="damaged"):
        await fail()
