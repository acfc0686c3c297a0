"""Tools over a namespace: its files are checked, adopted, and copied from a directory and back."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack, aclosing
from typing import TYPE_CHECKING

import pytest

from kgw.backend.base import Segmented
from kgw.backend.embedded.backend import EmbeddedBackend
from kgw.backend.embedded.offline.check import check_data_dir
from kgw.backend.embedded.offline.log_place import opened_source, opened_target
from kgw.backend.embedded.offline.state_copy import copy_state
from kgw.backend.log_copy import copy_logs
from kgw.backend.seaweedmq.chain.leader import LEADER, read_leader
from kgw.backend.seaweedmq.filer import FilerEntry
from kgw.backend.seaweedmq.offline.adopt import adopt, find_in
from kgw.backend.seaweedmq.offline.check import check_partition
from kgw.backend.seaweedmq.offline.log_place import NamespaceLogs
from kgw.backend.seaweedmq.options import SeaweedMqOptions
from kgw.backend.seaweedmq.topics.topic_conf import TOPIC_CONF
from kgw.errors import CorruptionError
from kgw.testing.backend_harness import KEY, SETTINGS
from kgw.testing.backend_harness import TOPIC as NAME
from tests.backend.seaweedmq.namespaces import (
    Filers,
    fill,
    namespace_logs,
    opened_namespace_state,
    reopened,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from kgw.backend.log_copy import CopiedLog, LogPlace
    from kgw.state.base import StateStore


async def copied(source: LogPlace, target: LogPlace) -> list[CopiedLog]:
    """Copy everything."""
    facts = await source.logs()
    return [one async for one in copy_logs(source, target, facts, lambda _: None)]


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    """Close what a test has opened."""
    async with AsyncExitStack() as opened:
        yield opened


@pytest.mark.parametrize(("count", "start"), [(10, 0), (10, 7), (10, 30), (0, 0)])
async def test_records_go_there_and_back_with_their_offsets(
    tmp_path: Path, stack: AsyncExitStack, count: int, start: int
) -> None:
    """Whatever is left of the log: the copies are its bytes, and begin and end where it does."""
    filers = Filers()
    expected = await fill(EmbeddedBackend(str(tmp_path / "data")), count, start=start)
    async with opened_source(str(tmp_path / "data")) as source:
        (there,) = await copied(source, await namespace_logs(filers, stack))
    assert (start, count * 3, None) == (there.start_offset, there.end_offset, there.failure)

    def open_namespace(_: str) -> AbstractAsyncContextManager[StateStore]:
        return opened_namespace_state(filers)

    url = "seaweedmq://filer:8888/kafka"
    await copy_state(str(tmp_path / "data"), url, open_namespace=open_namespace)
    assert [] == await filers.problems()
    async with opened_target(str(tmp_path / "back")) as target:
        (back,) = await copied(await namespace_logs(filers, stack), target)
    assert back.failure is None
    await copy_state(url, str(tmp_path / "back"), open_namespace=open_namespace)
    assert [] == await check_data_dir(str(tmp_path / "back"), reads_records=True)
    assert expected[1] == (await reopened(filers.backend()))[1]
    there_and_back = await reopened(EmbeddedBackend(str(tmp_path / "back")))
    assert expected[0].split()[:2] == there_and_back[0].split()[:2]
    assert expected[1] == there_and_back[1]


async def test_a_copy_goes_on_where_it_was(tmp_path: Path, stack: AsyncExitStack) -> None:
    """What an interrupted copy has stored is not copied again."""
    filers = Filers()
    await fill(EmbeddedBackend(str(tmp_path / "data")))
    async with opened_source(str(tmp_path / "data")) as source:
        (facts,) = await source.logs()
        first = await namespace_logs(filers, stack)
        assert await first.begin(facts) is None
        half = [one async for one in source.batches(KEY, 0)][:5]
        await first.append(KEY, half)
        await first.aclose()
        (one,) = await copied(source, await namespace_logs(filers, stack))
    assert (15, 30, None) == (one.copied_from, one.end_offset, one.failure)


async def test_a_copy_is_in_files_of_the_size_that_a_gateway_keeps(
    tmp_path: Path, stack: AsyncExitStack
) -> None:
    """Each append of a gateway writes the list of a file's chunks whole: no file grows for ever."""
    filers = Filers()
    await fill(EmbeddedBackend(str(tmp_path / "data")), 10)
    namespace = filers.namespace()
    await namespace.filer.open()
    await stack.enter_async_context(aclosing(namespace.filer))
    async with opened_source(str(tmp_path / "data")) as source:
        (facts,) = await source.logs()
        batches = [one async for one in source.batches(KEY, 0)]
        size_bytes = batches[0].size_bytes
        options = SeaweedMqOptions(file_bytes=3 * size_bytes + 1)
        target = NamespaceLogs(namespace, options)
        await target.begin(facts)
        for batch in batches:
            await target.append(KEY, [batch])
        await target.finish(facts)
    topic = filers.partition.rpartition("/")[0].rpartition("/")[0]
    conf = json.loads(filers.store.directories[topic][TOPIC_CONF].content)
    assert [31] == [row["partition"]["rangeStop"] for row in conf["brokerPartitionAssignments"]], (
        "SMQ's tools do not know which partitions there are"
    )
    leader, _ = read_leader(filers.store.directories[filers.partition][LEADER], LEADER)
    assert [3, 3, 3, 1] == [row.content_bytes // size_bytes for row in leader.rows]


async def test_a_file_that_was_begun_and_holds_nothing_yet_is_no_problem(
    tmp_path: Path, stack: AsyncExitStack
) -> None:
    """As after a kill right behind a roll: checked without a finding, and copied from."""
    filers = Filers()
    await fill(filers.backend())
    backend = filers.backend()
    await backend.open()
    async with aclosing(backend):
        log = await backend.open_partition(KEY, NAME, SETTINGS)
        assert isinstance(log, Segmented)
        await log.roll()
    assert [] == await filers.problems()
    async with opened_target(str(tmp_path / "copy")) as target:
        (one,) = await copied(await namespace_logs(filers, stack), target)
    assert (30, None) == (one.end_offset, one.failure)


async def test_a_log_without_files_may_have_lost_its_only_record() -> None:
    """The state says that the log ended at 1; its list of files names none."""
    filers = Filers()
    await fill(filers.backend(), 0)
    namespace = filers.namespace()
    await namespace.filer.open()
    async with aclosing(namespace.filer):
        found = [
            one.detail
            async for one in check_partition(namespace.filer, filers.partition, KEY, known_end=1)
        ]
    (problem,) = found
    assert problem.startswith("the log ends at 0, before 1, where the state has it end")


async def test_a_topic_that_is_there_twice_is_not_copied(stack: AsyncExitStack) -> None:
    """Nobody knows which of the two directories has its records: both are named."""
    filers = Filers()
    await fill(filers.backend())
    topic, _, version = filers.partition.rpartition("/")[0].rpartition("/")
    names = filers.store.directories[topic]
    filers.store.create(topic, names[version]._replace(name="v2099-01-01-00-00-00"))
    logs = await namespace_logs(filers, stack)
    with pytest.raises(CorruptionError, match=f"{version} and .*/v2099-01-01-00-00-00"):
        await logs.logs()


async def test_files_that_no_list_names_are_found() -> None:
    """SMQ's broker may have written to a topic of ours."""
    filers = Filers()
    backend = filers.backend()
    await fill(backend)
    namespace = filers.namespace()
    await namespace.filer.open()
    (leader,) = (
        path
        for path, names in filers.store.directories.items()
        if "leader.offset" in names and path.startswith("/topics/kafka/")
    )
    await namespace.filer.put(leader, FilerEntry("2026-01-01-00-00-00", content=b"x"))
    (problem,) = await filers.problems()
    assert problem.startswith(f"{leader}/2026-01-01-00-00-00: is named by no list")


async def test_topics_come_back_without_a_state() -> None:
    """Files alone say which topic they belong to."""
    filers = Filers()
    await fill(filers.backend())
    namespace = filers.namespace()
    await namespace.filer.open()
    await namespace.filer.delete("/topics/.kgw", "kafka", is_recursive=True)
    assert any("there is no state" in one for one in await filers.problems())
    (lost,) = await find_in(namespace)
    assert (NAME, (0,), None) == (lost.topic, lost.partitions, lost.obstacle)
    assert [lost] == (await adopt(namespace)).topics
    assert [] == await find_in(namespace)
    assert [] == await filers.problems()
