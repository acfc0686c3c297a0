"""The rights in the table of docs/pipeline.md are enough, and one that is missing is named."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

import pyarrow as pa
import pytest

from kgw.pipeline.archive.archived_topics import ArchivedTopic
from kgw.pipeline.cluster import Cluster
from kgw.pipeline.jobs.loading import HandOff, LoadProgress, begin, hand_over
from kgw.pipeline.jobs.retain import plan_log, run_log
from kgw.pipeline.options import read_sink_options
from kgw.pipeline.sink.exactly_once import ExactlyOnce, TaskAttempt
from kgw.pipeline.sink.writers import write_once
from kgw.testing.broker import Broker
from kgw.testing.security import BrokerSecurity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from kgw.pipeline.wire import WireClient

pytestmark = pytest.mark.slow

SINK_ID = "query-1"
PREFIXED = "transactional_id"
Right = tuple[str, str, str]
"""An operation, a type of resource and a name."""


class Use(NamedTuple):
    """What a user does, and the rights for it."""

    run: Callable[[Broker, str, Path], object]
    rights: tuple[Right, ...]


class Job(NamedTuple):
    """A job that loads the topic of a user."""

    generation: Path
    target: str
    topic_id: UUID = UUID(int=7)
    loader: str = "kgw-backfill-copy-"
    keeps_offsets: bool = False


def client(broker: Broker, user: str) -> WireClient:
    """Connect as a user who does not wait for what is refused."""
    return Cluster(broker.bootstrap, broker.client_config(user)).client(retry_s=0)


def hand_a_topic_over(broker: Broker, user: str, folder: Path) -> None:
    """Load a topic and let others write, as `backfill --hand-over` does around its tasks."""
    job = Job(folder, user)
    with client(broker, user) as wire:
        begin(wire, job)
        assert [HandOff(0, 5)] == hand_over(wire, job, [LoadProgress(0, 0, 5, 5)])


def cut_a_log(broker: Broker, user: str, folder: Path) -> None:
    """Remove what a group has read, as `retain --log --protect-group` does."""
    with client(broker, user) as wire:
        topic = wire.find_topic(user)
        assert topic is not None, "TOPIC_AUTHORIZATION_FAILED"
        life = ArchivedTopic(folder, user, UUID(bytes=bytes(topic.topic_id)))
        (cut,) = plan_log(wire, life, {0: 5}, ["readers"])
        assert 0 == cut.before_offset
        (cut,) = plan_log(wire, life, {0: 3}, [])
        (done,) = run_log(wire, life, [cut])
        assert (3, None) == (done.log_start_offset, done.refused), done.refused


def write_exactly_once(broker: Broker, user: str, folder: Path) -> None:
    """Write a batch in a transaction, as a stream with `exactlyOnce` does."""
    given = {f"kafka.{name}": value for name, value in broker.client_config(user).items()}
    given |= {"topic": user, "exactlyOnce": "true", "kafka.transactional.id": SINK_ID}
    options = read_sink_options(given)
    assert options.transaction is not None
    rows = pa.RecordBatch.from_pydict({"value": pa.array([b"1"], pa.binary())})
    place = TaskAttempt("query", 0, 0, 0)
    written = write_once(options, options.transaction, iter([rows]), place)
    assert written.producer is not None
    with client(broker, user) as wire:
        ExactlyOnce(wire, options.transaction).commit("query", 0, [written.producer], written.topic)


USES = {
    "hand-over": Use(hand_a_topic_over, (("WRITE", "topic", ""), ("ALTER_CONFIGS", "topic", ""))),
    "protect-group": Use(cut_a_log, (("DELETE", "topic", ""), ("DESCRIBE", "group", "readers"))),
    "exactly-once": Use(
        write_exactly_once,
        (
            ("WRITE", "topic", ""),
            ("READ", "topic", ""),
            ("WRITE", "transactional_id", SINK_ID),
            ("READ", "group", f"kgw-sink-{SINK_ID}"),
        ),
    ),
}
MISSING = [(name, right) for name, use in USES.items() for right in use.rights]


def user_of(name: str, missing: Right | None = None) -> str:
    """Return the user who makes a use without a right, and whose topic has the same name."""
    return name if missing is None else f"{name}-without-{missing[0]}-{missing[1]}"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """A broker with a user, and a topic of the user, for each use and each missing right."""
    cases: list[tuple[str, Right | None]] = [*((name, None) for name in USES), *MISSING]
    users = [user_of(name, missing) for name, missing in cases]
    security = BrokerSecurity("SASL_PLAINTEXT", users=dict.fromkeys(users, "secret"))
    for user, (name, missing) in zip(users, cases, strict=True):
        for right in USES[name].rights:
            operation, kind, resource = right
            given: dict[str, Any] = {kind: resource or user, "prefixed": kind == PREFIXED}
            if right != missing:
                security = security.allow(user, operation, **given)
    with Broker(topics=dict.fromkeys(users, 1), security=security) as made:
        for user in users:
            made.produce(user, [f"{number}" for number in range(5)])
        yield made


@pytest.mark.parametrize("name", USES)
def test_the_rights_are_enough(broker: Broker, tmp_path: Path, name: str) -> None:
    """Nobody needs to be a super user."""
    USES[name].run(broker, user_of(name), tmp_path)


@pytest.mark.parametrize(("name", "missing"), MISSING, ids=str)
def test_a_missing_right_is_named(
    broker: Broker, tmp_path: Path, name: str, missing: Right
) -> None:
    """The error has Kafka's code for the type of the resource, and no password."""
    user = user_of(name, missing)
    with pytest.raises(Exception, match=f"{missing[1].upper()}_AUTHORIZATION_FAILED") as raised:
        USES[name].run(broker, user, tmp_path)
    assert "secret" not in str(raised.value)
