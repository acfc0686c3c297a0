"""The bugs that are planted in groups are those that their names say, however a request comes."""

from __future__ import annotations

import pytest

from kgw.testing.gateway import InProcessGateway
from tests.campaigns import broken_groups_serve
from tests.groups.wire import commit_request, errors_of
from tests.handlers.support import create_topic


@pytest.mark.parametrize("partitions", [1, 2, 40])
async def test_commits_too_far_are_stored_too_far(
    monkeypatch: pytest.MonkeyPatch, partitions: int
) -> None:
    """Offsets of one partition, of some and of many are two too high, and nothing else fails."""
    monkeypatch.setattr(broken_groups_serve, "plant", monkeypatch.setattr)
    broken_groups_serve.BUGS["commits-too-far"]()
    async with InProcessGateway() as gateway:
        topic = await create_topic(gateway, partitions=partitions)
        # One partition's second commit is known by its head; many partitions make a block.
        for offset in (5, 6):
            offsets = dict.fromkeys(range(partitions), offset)
            commit = commit_request("group", "", None, -1, topic.name, offsets)
            assert {0} == set(errors_of(await gateway.request(commit, 8)))
            stored = gateway.groups.offsets("group")
            assert stored is not None
            for index in range(partitions):
                found = stored.get(topic.topic_id, index)
                assert found is not None
                assert offset + 2 == found.offset
