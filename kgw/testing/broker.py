"""A broker in the test's own process, with methods that block.

    with Broker(topics={"orders": 3}) as broker:
        broker.produce("orders", [b"first"])
        assert [b"first"] == [record.value for record in broker.records("orders")]

Faults, costumes and limits affect clients, but not the broker's own methods.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar

from kgw.backend.registry import open_backend
from kgw.clock import SystemClock
from kgw.config.listeners import SecurityProtocol
from kgw.testing import arguments
from kgw.testing.fault_rules import FaultList
from kgw.testing.faults import Faults
from kgw.testing.loop_thread import LoopThread
from kgw.testing.moving_clock import MovingClock
from kgw.testing.options import broker_config, topic_specs
from kgw.testing.serving import HOST, ServedBroker

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Coroutine, Iterable, Mapping
    from pathlib import Path

    from kgw.backend.base import Backend
    from kgw.client import GroupMember
    from kgw.config import Config
    from kgw.server.listener_security import ListenerSecurity
    from kgw.testing.asking import Record
    from kgw.testing.client_configs import Certificates
    from kgw.testing.costumes import Costume
    from kgw.testing.options import TopicSpec
    from kgw.testing.security import BrokerSecurity

    Topics: TypeAlias = str | Mapping[str, int | TopicSpec | Mapping[str, object]]
    Data: TypeAlias = bytes | bytearray | memoryview | str | None
    Headers: TypeAlias = Mapping[str, Data] | Iterable[tuple[str, Data]]

ResultT = TypeVar("ResultT")

_SALT_BYTES = 16

# Events go to the log handlers of the test's process; without a handler, Python would print them.
logging.getLogger("kgw").addHandler(logging.NullHandler())


class BrokerClock:
    """The broker's time: the machine's clocks plus an offset that a test can increase.

    Clients do not use this clock.
    """

    def __init__(self, broker: Broker, clock: MovingClock) -> None:
        self._broker = broker
        self._clock = clock

    def advance(self, seconds: float) -> None:
        """Move the broker's clock forward; return when all timers that are due have run.

        Raises ValueError for a negative time.
        """
        self._broker.run(self._clock.put_forward, arguments.seconds("seconds", seconds))

    @property
    def ahead_s(self) -> float:
        """How many seconds the broker's clock is ahead of the machine's clocks."""
        return self._clock.ahead_s

    def time_ms(self) -> int:
        """The broker's time, in milliseconds since the Unix epoch."""
        return self._clock.wall_ms()


class Broker:
    """A broker on a free port of 127.0.0.1, which can be used as a context manager.

    Methods can be called from any thread, and return when their work is done.
    """

    def __init__(
        self,
        *,
        topics: Topics | Iterable[Topics] | None = None,
        settings: Mapping[str, object] | None = None,
        data_dir: Path | str | None = None,
        costume: str | None = None,
        security: BrokerSecurity | Mapping[str, Any] | None = None,
        thread: LoopThread | None = None,
    ) -> None:
        """`topics` are created at the start, in the forms that `create_topics` accepts.

        With `data_dir`, records are kept on disk.

        `settings` has server settings by Kafka's names; `costume` is a release of Kafka to imitate.
        `security` has the protocol, the users and the access rules, as an object of
        `kgw.testing.security` or a dict of its arguments; without it, everybody connects in plain
        text. With `thread`, several brokers share a thread, and do not end it.

        Raises ConfigError and ValueError for invalid arguments.
        """
        self._topics = topic_specs("topics", {} if topics is None else topics)
        self._clock = MovingClock()
        self._security = _security(security)
        self._certificates: Certificates | None = None
        secured = None if self._security is None else self._secured(self._security)
        self._config = broker_config({} if settings is None else settings, data_dir, secured)
        self._listener_security = _listener_security(self._config)
        self._costume = _costume(costume)
        self._owns_thread = thread is None
        self._thread = thread
        self._fault_list = FaultList()
        self._backend: Backend | None = None
        self._served: ServedBroker | None = None
        self.port = 0
        """The port that the broker listens on; it stays the same after a restart."""
        self.clock = BrokerClock(self, self._clock)
        """The broker's clock."""
        self.faults = Faults(self._fault_list)
        """Makes faults for the clients of this broker."""

    def __repr__(self) -> str:
        return f"<Broker {self.bootstrap}{'' if self.is_running else ', stopped'}>"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def bootstrap(self) -> str:
        """The address for clients, as host:port."""
        return f"{HOST}:{self.port}"

    @property
    def is_running(self) -> bool:
        """Whether the broker listens."""
        return self._served is not None

    # --- starting and stopping --------------------------------------------------------------------

    def start(self) -> Self:
        """Start the broker, at its previous port if it had one. Raises KgwError."""
        if self._served is not None:
            raise RuntimeError("the broker runs already")
        is_first = not self.port
        if self._thread is None:
            self._thread = LoopThread()
        try:
            self._served = self._thread.call(self._start, self._thread.ports_used)
            if is_first:
                if self._security is not None:
                    self._make_users(self._security)
                self.create_topics(self._topics)
        except BaseException:
            self.close()
            raise
        return self

    def stop(self) -> None:
        """Stop the broker in order: acknowledged records are kept, connections end."""
        self._end(ServedBroker.stop)

    def kill(self) -> None:
        """End the broker as `kill -9` does: nothing is finished, and the next start is unclean."""
        self._end(ServedBroker.kill)

    def restart(self, *, kill: bool = False) -> None:
        """Stop or kill the broker, and start it again with the same port and records."""
        if kill:
            self.kill()
        else:
            self.stop()
        self.start()

    def close(self) -> None:
        """Stop the broker for good, if it runs.

        Records in memory are lost, those in a data directory are kept.
        """
        thread, owns_thread = self._thread, self._owns_thread
        if thread is None:
            return
        try:
            if self._served is not None:
                self.stop()
        finally:
            self._fault_list.clear()
            self._backend = None
            if owns_thread:
                self._thread = None
                thread.close()

    async def _start(self, ports_used: deque[int]) -> ServedBroker:
        config = self._config
        # Keep a memory backend, even after a kill.
        if self._backend is None or config.backend != "memory":
            self._backend = open_backend(config, self._clock)
        served = ServedBroker(
            config,
            self._backend,
            self._clock,
            self._fault_list,
            self._costume,
            self._listener_security,
        )
        self.port = await served.start(self.port, ports_used)
        ports_used.append(self.port)
        return served

    def _end(self, how: Callable[[ServedBroker], Coroutine[Any, Any, None]]) -> None:
        served = self._running()
        self._served = None
        assert self._thread is not None  # noqa: S101 - it was started
        self._thread.call(how, served)

    def _running(self) -> ServedBroker:
        if self._served is None:
            raise RuntimeError("the broker does not run")
        return self._served

    def run(
        self, function: Callable[..., Coroutine[object, object, ResultT]], *args: object
    ) -> ResultT:
        """Run a coroutine function in the broker's event loop, for tasks without a method here."""
        self._running()
        assert self._thread is not None  # noqa: S101 - it was started
        return self._thread.call(function, *args)

    # --- versions ---------------------------------------------------------------------------------

    def costume(self, release: str | None) -> None:
        """Make the broker look like a release of Kafka to new connections; None ends this.

        Open connections are closed, because clients ask for API versions only once per connection.
        Raises ValueError for an unknown release.
        """
        self._costume = _costume(release)
        served = self._running()

        async def dress() -> None:
            served.dispatcher.costume = self._costume
            served.server.drop_all()

        self.run(dress)

    def drop_connections(self) -> int:
        """Close every open connection, without an error response.

        Return the number of closed connections.
        """
        served = self._running()

        async def drop() -> int:
            return served.server.drop_all()

        return self.run(drop)

    # --- clients and their rights -----------------------------------------------------------------

    def client_config(
        self, user: str | None = None, *, password: str | None = None, mechanism: str | None = None
    ) -> dict[str, str]:
        """Return how a client connects, by librdkafka's names, for confluent-kafka.

        Without `user`, it is the first one of a broker with logins. `password` is another one than
        the user's. At an SSL listener the client gets a certificate with the user as its common
        name, and none without a user. Raises ValueError.
        """
        mechanisms = self._config.sasl_enabled_mechanisms
        found: dict[str, str] = self._client_configs().properties(
            self._security, self._certificates, mechanisms, user, password, mechanism
        )
        return {"bootstrap.servers": self.bootstrap, **found}

    def client_arguments(
        self, user: str | None = None, *, password: str | None = None, mechanism: str | None = None
    ) -> dict[str, Any]:
        """Return the same as keyword arguments, for kafka-python and aiokafka."""
        properties = self.client_config(user, password=password, mechanism=mechanism)
        found: dict[str, Any] = self._client_configs().as_arguments(properties)
        return found

    @property
    def authority_pem(self) -> str:
        """The certificate of the authority that clients must trust. Raises ValueError without TLS.

        Each broker has its own.
        """
        if self._certificates is None:
            raise arguments.ArgumentError("the broker has no TLS, and so no certificate")
        return self._certificates.authority_pem

    def allow(self, user: str, *operations: str, **resource: Any) -> None:
        """Add access rules that allow operations on a resource, as `"READ", topic="orders"`.

        Resources are `topic`, `group`, `transactional_id` and `cluster=True`; with `prefixed=True`
        names are the beginnings of names, and `host` is the address of the client. Raises
        ValueError.
        """
        self._add_rules("allow", user, operations, resource)

    def deny(self, user: str, *operations: str, **resource: Any) -> None:
        """Add access rules that deny operations, whatever others allow. Raises ValueError."""
        self._add_rules("deny", user, operations, resource)

    def _add_rules(
        self, what: str, user: str, operations: tuple[str, ...], resource: dict[str, Any]
    ) -> None:
        access = self._running().gateway.access
        if access is None or self._security is None:
            raise arguments.ArgumentError("access rules are off: the security names no super_users")
        known = len(self._security.rules)
        ruled = getattr(self._security, what)(user, *operations, **resource)
        self.run(access.add, ruled.rules[known:])

    def _secured(self, security: BrokerSecurity) -> dict[str, str]:
        """Make certificates, and return the settings of the broker."""
        settings = security.settings()
        if security.protocol.has_tls:
            self._certificates = self._client_configs().Certificates(
                security.protocol.value, self._clock.wall_ms() / 1000
            )
            settings |= self._certificates.settings()
        return settings

    def _make_users(self, security: BrokerSecurity) -> None:
        gateway = self._running().gateway
        credentials = security.credentials(os.urandom(_SALT_BYTES))

        async def make() -> None:
            if credentials:
                await (await gateway.load_credentials()).change(credentials)
            if gateway.access is not None:
                await gateway.access.add(security.rules)

        self.run(make)

    def _client_configs(self) -> Any:
        # Not imported at the top: most brokers of tests have no need of it.
        from kgw.testing import client_configs

        return client_configs

    # --- topics and records -----------------------------------------------------------------------

    def create_topics(
        self, /, *topics: Topics | Iterable[Topics], **more: int | Mapping[str, object]
    ) -> None:
        """Create topics, given in the same forms as for the marker kgw_topics.

        A form is a name, for a topic with one partition; `orders=3` or `{"orders": 3}`; or a list
        of forms. Instead of the number, settings can be given: `{"partitions": 3, "retention.ms":
        1000}`. Raises ValueError, KafkaError.
        """
        specs = topic_specs("topics", *topics, **more)
        manager = self._running().gateway.topic_manager

        async def create() -> None:
            for name, spec in specs.items():
                await manager.create(name, spec.partitions, spec.settings)

        self.run(create)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic. Raises ServerRefusedError."""
        topic = arguments.text("topic", topic)
        self.run(self._asking().delete_topic, self._running().client, topic)

    def topics(self) -> dict[str, int]:
        """Return the partition count of each topic."""
        catalog = self._running().gateway.catalog

        async def look() -> dict[str, int]:
            return {name: one.partition_count for name, one in sorted(catalog.topics.items())}

        return self.run(look)

    def produce(
        self,
        topic: str,
        values: Iterable[Data],
        *,
        key: Data = None,
        partition: int | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> list[int]:
        """Append a record for each value; return the offsets.

        Text is encoded in UTF-8. Without `partition`, the partition is chosen by the key as by
        Kafka's clients; it is 0 without a key. Without `timestamp_ms`, the broker's time is used.
        Many records need several batches; if a batch is refused, earlier ones stay stored. Raises
        ServerRefusedError, and ValueError for an invalid argument.
        """
        if timestamp_ms is not None:
            timestamp_ms = arguments.whole_number("timestamp_ms", timestamp_ms)
        return self.run(
            self._asking().produce,
            self._running().client,
            arguments.text("topic", topic),
            arguments.values("values", values),
            arguments.data("key", key),
            _partition(partition),
            arguments.headers("headers", headers),
            self.clock.time_ms() if timestamp_ms is None else timestamp_ms,
        )

    def records(
        self, topic: str, partition: int | None = None, *, read_committed: bool = False
    ) -> list[Record]:
        """Return the records of a topic or partition, sorted by partition and offset.

        With `read_committed`, records of open and aborted transactions are left out. Raises
        ServerRefusedError, and DamagedRangeError for unreadable records.
        """
        client = self._running().client
        topic, partition = arguments.text("topic", topic), _partition(partition)
        return self.run(self._asking().records, client, topic, partition, read_committed)

    def values(self, topic: str) -> list[bytes | None]:
        """Return the values of a topic's records."""
        return [record.value for record in self.records(topic)]

    # --- groups -----------------------------------------------------------------------------------

    def committed(self, group_id: str) -> dict[tuple[str, int], int]:
        """Return the offsets that a group has committed, by topic and partition."""
        group_id = arguments.text("group_id", group_id)
        return self.run(self._asking().committed, self._running().client, group_id)

    def members(self, group_id: str) -> tuple[GroupMember, ...]:
        """Return a group's members with their assignments; none if the group does not exist."""
        group_id = arguments.text("group_id", group_id)
        return self.run(self._asking().members, self._running().client, group_id)

    def groups(self) -> list[str]:
        """Return the ids of all groups."""
        return self.run(self._asking().groups, self._running().client)

    def _asking(self) -> Any:
        # Not imported at the top: this takes a third of a start, and not every test needs it.
        from kgw.testing import asking

        return asking


def _partition(given: int | None) -> int | None:
    return None if given is None else arguments.whole_number("partition", given)


def _security(given: Any) -> BrokerSecurity | None:
    if given is None:
        return None
    # Not imported at the top: few tests need it.
    from kgw.testing.security import security_of

    return security_of(given)


def _listener_security(config: Config) -> Mapping[str, ListenerSecurity]:
    """Return the TLS and the login of the listener. It reads files: not for the event loop."""
    if set(config.protocols.values()) == {SecurityProtocol.PLAINTEXT}:
        return {}
    # Not imported at the top: most brokers of tests have neither TLS nor logins.
    from kgw.server.listener_security import ServedSecurity

    return ServedSecurity(config, SystemClock()).listeners


def _costume(release: str | None) -> Costume | None:
    if release is None:
        return None
    release = arguments.text("costume", release)
    # Not imported at the top: few tests need it.
    from kgw.testing.costumes import Costume

    return Costume(release)
