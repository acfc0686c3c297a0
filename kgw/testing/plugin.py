"""The pytest plugin: fixtures and markers. It comes with kgw (docs/pytest.md).

pytest always imports this file; it imports other modules of kgw only when a test uses a fixture.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from kgw.testing.broker import Broker
    from kgw.testing.loop_thread import LoopThread
    from kgw.testing.security import BrokerSecurity

MARKERS = {
    "kgw_topics(*names, **topics)": (
        "topics of kgw_broker: names with one partition each, `orders=3` partitions, or "
        '`orders={"partitions": 3, "retention.ms": 1000}`; a dict stands for names that no '
        "argument can have, a list for several"
    ),
    "kgw_settings(settings)": 'a dict of settings of kgw_broker, as {"num.partitions": 3}',
    "kgw_backend(name)": "where kgw_broker keeps records: memory, or embedded (below tmp_path)",
    "kgw_costume(release)": "the release of Kafka that kgw_broker passes for, as 2.8",
    "kgw_security(protocol, users, super_users)": (
        'TLS, logins and access rules of kgw_broker: `"SASL_SSL", users={"alice": "secret"}`; '
        "super_users, be the list empty, switches access rules on"
    ),
    "kgw_allow(user, *operations, **resource)": (
        'an access rule of kgw_broker that allows: `"alice", "READ", topic="orders"`; resources '
        "are topic, group, transactional_id and cluster=True, prefixed=True makes names prefixes"
    ),
    "kgw_deny(user, *operations, **resource)": "the same, and denies whatever others allow",
}
"""The markers, by their form, with their meaning."""

_NAMES = tuple(form.partition("(")[0] for form in MARKERS)


def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Keep pytest from rewriting kgw's assertions, also if a conftest.py imports kgw."""
    # pytest rewrites the assertions of packages with plugins: the first broker would take 0.28 s
    # instead of 0.05 s in each process that cannot write bytecode.
    hook = early_config.pluginmanager.rewrite_hook
    getattr(hook, "_must_rewrite", set()).discard("kgw")


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers."""
    for form, doc in MARKERS.items():
        config.addinivalue_line("markers", f"{form}: {doc}")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Refuse a broker's markers directly on a test that does not use the broker.

    Markers of its class or module may be for other tests, and a test with `request` may still ask
    for a broker.
    """
    __tracebackhide__ = True
    used = [marker.name for marker in item.own_markers if marker.name in _NAMES]
    if used and {"kgw_broker", "request"}.isdisjoint(getattr(item, "fixturenames", ())):
        raise pytest.UsageError(f"{item.nodeid} has {used[0]} and does not use kgw_broker")


@pytest.fixture(scope="session")
def kgw_thread() -> Iterator[LoopThread]:
    """Yield the thread that all brokers of the test run share."""
    from kgw.testing.loop_thread import LoopThread

    thread = LoopThread()
    yield thread
    thread.close()


@pytest.fixture(scope="session")
def kgw_server_settings() -> Mapping[str, object]:
    """Return the settings of kgw_server; override this fixture to change them."""
    return {}


@pytest.fixture
def kgw_settings() -> Mapping[str, object]:
    """Return the settings of kgw_broker; override this fixture to change them."""
    return {}


@pytest.fixture(scope="session")
def kgw_server_security() -> BrokerSecurity | Mapping[str, Any] | None:
    """Return the security of kgw_server; override this fixture for TLS, logins and rules."""
    return None


@pytest.fixture
def kgw_security() -> BrokerSecurity | Mapping[str, Any] | None:
    """Return the security of kgw_broker; override this fixture for TLS, logins and rules."""
    return None


@pytest.fixture(scope="session")
def kgw_server(
    kgw_thread: LoopThread,
    kgw_server_settings: Mapping[str, object],
    kgw_server_security: BrokerSecurity | Mapping[str, Any] | None,
) -> Iterator[Broker]:
    """Yield a broker that lasts for the whole test run: tests see the data of earlier tests."""
    __tracebackhide__ = True
    settings = _dict("kgw_server_settings", kgw_server_settings)
    broker = _broker("kgw_server", kgw_thread, settings=settings, security=kgw_server_security)
    yield from _running(broker)


@pytest.fixture
def kgw_broker(
    request: pytest.FixtureRequest,
    kgw_thread: LoopThread,
    kgw_settings: Mapping[str, object],
    kgw_security: BrokerSecurity | Mapping[str, Any] | None,
) -> Iterator[Broker]:
    """Yield a new broker, with the topics, settings and security in the test's markers."""
    __tracebackhide__ = True
    node = request.node
    topics: dict[str, Any] = {}
    settings = _dict("kgw_settings", kgw_settings)
    # Apply the closest marker last, so that it takes precedence.
    for marker in reversed(list(node.iter_markers())):
        if marker.name == "kgw_topics":
            topics.update(_topics(node, marker))
        elif marker.name == "kgw_settings":
            settings.update(_only(node, marker, dict))
    costume, backend = (node.get_closest_marker(name) for name in ("kgw_costume", "kgw_backend"))
    data_dir: Path | None = None
    name = "memory" if backend is None else _only(node, backend, str)
    if name == "embedded":
        data_dir = request.getfixturevalue("tmp_path") / "kgw-data"
    elif name != "memory":
        raise pytest.UsageError(f"{node.nodeid}: kgw_backend is memory or embedded, not {name!r}")
    broker = _broker(
        node.nodeid,
        kgw_thread,
        topics=topics,
        settings=settings,
        data_dir=data_dir,
        costume=None if costume is None else _only(node, costume, str),
        security=_security(node, kgw_security),
    )
    yield from _running(broker)


def _broker(whose: str, thread: LoopThread, **options: Any) -> Broker:
    __tracebackhide__ = True
    from kgw.config import ConfigError
    from kgw.errors import KgwError
    from kgw.testing.broker import Broker

    try:
        return Broker(thread=thread, **options).start()
    except (ConfigError, KgwError, ValueError) as error:
        raise pytest.UsageError(f"{whose}: {error}") from None


def _running(broker: Broker) -> Iterator[Broker]:
    try:
        yield broker
        broker.faults.check()
    finally:
        broker.close()


def _dict(fixture: str, returned: Any) -> dict[str, object]:
    """Return the dict that a user's fixture has returned."""
    __tracebackhide__ = True
    if not hasattr(returned, "items"):
        raise pytest.UsageError(f"the fixture {fixture} returns a dict, not {returned!r}")
    return dict(returned.items())


def _topics(node: pytest.Item, marker: pytest.Mark) -> dict[str, Any]:
    __tracebackhide__ = True
    from kgw.testing.options import topic_specs

    try:
        topics = topic_specs("kgw_topics", *marker.args, **marker.kwargs)
    except ValueError as error:
        raise pytest.UsageError(f"{node.nodeid}: {error}") from None
    if not topics:
        raise pytest.UsageError(f"{node.nodeid}: kgw_topics names no topic")
    return topics


def _security(
    node: pytest.Item, fixture: BrokerSecurity | Mapping[str, Any] | None
) -> BrokerSecurity | Mapping[str, Any] | None:
    """Return the security of the closest marker, otherwise the fixture's; with all rules."""
    __tracebackhide__ = True
    rules = [one for one in node.iter_markers() if one.name in {"kgw_allow", "kgw_deny"}]
    marker = node.get_closest_marker("kgw_security")
    if marker is None and not rules:
        return fixture
    from kgw.testing.security import BrokerSecurity, security_of

    try:
        found = (
            security_of(fixture)
            if marker is None
            else BrokerSecurity(*marker.args, **marker.kwargs)
        )
    except (TypeError, ValueError) as error:
        raise pytest.UsageError(f"{node.nodeid}: kgw_security: {error}") from None
    for rule in rules:
        if found is None:
            raise pytest.UsageError(f"{node.nodeid}: {rule.name} needs kgw_security")
        change = found.allow if rule.name == "kgw_allow" else found.deny
        try:
            found = change(*rule.args, **rule.kwargs)
        except (TypeError, ValueError) as error:
            raise pytest.UsageError(f"{node.nodeid}: {rule.name}: {error}") from None
    return found


def _only(node: pytest.Item, marker: pytest.Mark, kind: type) -> Any:
    """Return a marker's single argument."""
    __tracebackhide__ = True
    if len(marker.args) != 1 or marker.kwargs or not isinstance(marker.args[0], kind):
        raise pytest.UsageError(
            f"{node.nodeid}: {marker.name} has one argument, a {kind.__name__}, and no other"
        )
    return marker.args[0]
