"""The plugin in runs of pytest of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from kgw.testing.plugin import MARKERS
from tests.testing.running import Outcome, run_pytest

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]

ASYNC_TESTS = """
import pytest
from kgw.client import AsyncClient

pytestmark = pytest.mark.kgw_topics("orders")

{mark}
async def test_a_client_in_the_tests_own_loop(kgw_broker):
    async with AsyncClient([("127.0.0.1", kgw_broker.port)]) as client:
        assert ["orders"] == [topic.name for topic in await client.topics()]
        kgw_broker.clock.advance(1)

{mark}
async def test_another(kgw_broker):
    assert [] == kgw_broker.values("orders")
"""
MARKED = """
import pytest

pytestmark = [
    pytest.mark.kgw_topics("a", b=2),
    pytest.mark.kgw_settings({"num.partitions": 5, "auto.create.topics.enable": False}),
]

@pytest.fixture
def kgw_settings():
    return {"num.partitions": 4}

def test_of_the_module(kgw_broker):
    assert {"a": 1, "b": 2} == kgw_broker.topics()

@pytest.mark.kgw_topics({"b.c": 4}, b={"partitions": 3, "retention.ms": 1000})
class TestClass:
    def test_of_the_class(self, kgw_broker):
        assert {"a": 1, "b": 3, "b.c": 4} == kgw_broker.topics()

    @pytest.mark.kgw_topics("b")
    @pytest.mark.kgw_backend("embedded")
    @pytest.mark.kgw_costume("2.8")
    def test_of_its_own(self, kgw_broker, tmp_path):
        assert {"a": 1, "b": 1, "b.c": 4} == kgw_broker.topics()
        assert ["kgw-data"] == [one.name for one in tmp_path.iterdir()]
"""
SHARED = """
def test_one(kgw_server, kgw_broker):
    kgw_server.create_topics("kept")
    kgw_broker.create_topics("gone")
    assert kgw_server.bootstrap != kgw_broker.bootstrap

def test_two(kgw_server, kgw_broker):
    assert ({"kept": 1}, {}) == (kgw_server.topics(), kgw_broker.topics())
"""
SECURED = """
import asyncio
import pytest
from kgw.client import AsyncClient, client_security

pytestmark = [
    pytest.mark.kgw_topics("orders", "secrets"),
    pytest.mark.kgw_security("SASL_SSL", users={"alice": "a", "bob": "b"}),
]

def topics(broker, user=None):
    async def ask():
        security = client_security(broker.client_config(user))
        async with AsyncClient([("127.0.0.1", broker.port)], security=security) as client:
            return sorted(one.name for one in await client.topics())
    return asyncio.run(ask())

def test_logins(kgw_broker):
    assert ["orders", "secrets"] == topics(kgw_broker) == topics(kgw_broker, "bob")

@pytest.mark.kgw_allow("alice", "READ", topic=["orders", "secrets"])
@pytest.mark.kgw_deny("*", "DESCRIBE", topic="sec", prefixed=True)
def test_rules(kgw_broker):
    assert (["orders"], []) == (topics(kgw_broker, "alice"), topics(kgw_broker, "bob"))

@pytest.mark.kgw_security("SSL", super_users=["admin"])
def test_the_closest_one(kgw_broker):
    assert ([], ["orders", "secrets"]) == (topics(kgw_broker), topics(kgw_broker, "admin"))
"""
SECURED_BY_FIXTURES = """
import pytest
from kgw.testing.security import BrokerSecurity

@pytest.fixture
def kgw_security():
    return BrokerSecurity("SASL_PLAINTEXT", users={"alice": "a"})

@pytest.fixture(scope="session")
def kgw_server_security():
    return {"protocol": "SSL", "super_users": []}

@pytest.mark.kgw_allow("alice", "READ", topic="orders")
def test_fixtures(kgw_broker, kgw_server):
    assert "SASL_PLAINTEXT" == kgw_broker.client_config()["security.protocol"]
    assert "SSL" == kgw_server.client_config()["security.protocol"]
    kgw_server.allow("alice", "READ", topic="orders")
"""
UNITTEST = """
import unittest
import pytest
from kgw.testing.testcase import BrokerTestCase

@pytest.mark.kgw_topics("orders")
class FixtureTest(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def take_broker(self, kgw_broker):
        self.broker = kgw_broker

    def test_fixture(self):
        self.assertEqual({"orders": 1}, self.broker.topics())

class CaseTest(BrokerTestCase):
    kgw_topics = {"orders": 2}
    kgw_settings = {"num.partitions": 3}
    kgw_costume = "3.9"
    kgw_security = {"protocol": "SASL_PLAINTEXT", "users": {"alice": "a"}}

    def test_topics(self):
        self.assertEqual({"orders": 2}, self.kgw_broker.topics())
        self.assertEqual("alice", self.kgw_broker.client_config()["sasl.username"])
        self.kgw_broker.create_topics("other")

    def test_clean(self):
        self.assertEqual({"orders": 2}, self.kgw_broker.topics())

    def test_unstruck(self):
        self.kgw_broker.faults.not_leader(must_strike=True)
"""
UNSTRUCK = """
def test_unstruck(kgw_broker):
    kgw_broker.faults.not_leader(must_strike=True)

def test_the_next_one(kgw_broker):
    assert {} == kgw_broker.topics()
"""
NONSENSE = {
    "kgw_topics()": "kgw_topics names no topic",
    "kgw_topics(3)": "kgw_topics: 3 is no name of a topic",
    "kgw_topics(a=0)": "a topic has one partition or more, not 0",
    'kgw_topics("no name")': "'no name': a topic name is made of letters",
    'kgw_settings({"no.such.setting": 3})': "unknown setting no.such.setting",
    "kgw_settings(a=3)": "kgw_settings has one argument, a dict, and no other",
    'kgw_backend("disk")': "kgw_backend is memory or embedded, not 'disk'",
    'kgw_costume("1.9")': "no costume for Kafka '1.9'",
    "kgw_costume(2.8)": "kgw_costume has one argument, a str, and no other",
    'kgw_security("TLS")': "kgw_security: 'TLS' is none of PLAINTEXT, SSL",
    'kgw_security("SSL", user={})': "kgw_security: BrokerSecurity.__init__() got an unexp",
    'kgw_allow("alice", "READ", topic="a")': "kgw_allow needs kgw_security",
}
NONSENSE_TESTS = "import pytest\n" + "\n".join(
    f"@pytest.mark.{marker}\ndef test_{number}(kgw_broker): ..."
    for number, marker in enumerate(NONSENSE)
)
# As pytest does where kgw is installed from a wheel.
REGISTERS = """
import pytest
pytest.register_assert_rewrite("kgw")
"""
LOADED = """
import sys

def test_loader(kgw_broker):
    assert "SourceFileLoader" == type(sys.modules["kgw.gateway"].__loader__).__name__
"""
UNUSED = 'import pytest\n@pytest.mark.kgw_topics("a")\ndef test_unused(): ...'
# Its module has a marker for others; its fixture asks for the broker by itself.
USED_OR_NOT = """
import pytest

pytestmark = pytest.mark.kgw_topics("a")

def test_without_a_broker(): ...

@pytest.fixture
def asked_for(request):
    return request.getfixturevalue("kgw_broker")

@pytest.mark.kgw_topics("b")
def test_asks_later(asked_for):
    assert {"a": 1, "b": 1} == asked_for.topics()
"""
NO_DICT = """
import pytest

@pytest.fixture
def kgw_settings(): ...

def test_no_dict(kgw_broker): ...
"""
OF_ONE_RUN = {
    "test_marked": MARKED,
    "test_shared": SHARED,
    "test_secured": SECURED,
    "test_secured_by_fixtures": SECURED_BY_FIXTURES,
    "test_unittest": UNITTEST,
    "test_unstruck": UNSTRUCK,
    "test_nonsense": NONSENSE_TESTS,
    "test_unused": UNUSED,
    "test_used_or_not": USED_OR_NOT,
    "test_no_dict": NO_DICT,
    "registers": REGISTERS,
    "conftest": "from kgw.testing.broker import Broker",
    "test_loaded": LOADED,
    "test_strict": ASYNC_TESTS.format(mark="@pytest.mark.asyncio"),
    "test_one_loop": ASYNC_TESTS.format(mark='@pytest.mark.asyncio(loop_scope="session")'),
}

Outcomes = dict[tuple[str, str], Outcome]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """Return what became of all the tests above."""
    return run_pytest(tmp_path_factory.mktemp("plugin"), OF_ONE_RUN, "-pregisters")


def of(outcomes: Outcomes, file: str) -> dict[str, str]:
    """Return the results of one file's tests; the text where one has not passed."""
    return {
        name: outcome.text or outcome.result
        for (where, name), outcome in outcomes.items()
        if where == file
    }


@pytest.mark.parametrize(
    ("file", "count"),
    [
        ("test_marked", 3),
        ("test_shared", 2),
        ("test_secured", 3),
        ("test_secured_by_fixtures", 1),
        ("test_strict", 2),
        ("test_one_loop", 2),
        ("test_used_or_not", 2),
    ],
)
def test_tests_of_users_pass(outcomes: Outcomes, file: str, count: int) -> None:
    """Markers of test, class and module; both brokers; pytest-asyncio with loops of both kinds."""
    assert ["passed"] * count == list(of(outcomes, file).values())


@pytest.mark.parametrize(("number", "text"), list(enumerate(NONSENSE.values())))
def test_nonsense_is_a_usage_error(outcomes: Outcomes, number: int, text: str) -> None:
    """Of that test alone, and in one line."""
    said = of(outcomes, "test_nonsense")[f"test_{number}"]
    assert f"UsageError: test_nonsense.py::test_{number}: " in said
    assert text in said


def test_pytest_does_not_rewrite_kgw(outcomes: Outcomes) -> None:
    """Its modules are loaded as in any other process, those too that a conftest.py imports."""
    assert {"test_loader": "passed"} == of(outcomes, "test_loaded")


def test_a_marker_without_its_broker_is_a_usage_error(outcomes: Outcomes) -> None:
    """Nobody would have made the topics."""
    said = of(outcomes, "test_unused")["test_unused"]
    assert "test_unused.py::test_unused has kgw_topics and does not use kgw_broker" in said


def test_settings_that_are_no_dict_are_a_usage_error(outcomes: Outcomes) -> None:
    """A fixture that forgets to return them is named."""
    said = of(outcomes, "test_no_dict")["test_no_dict"]
    assert "UsageError: the fixture kgw_settings returns a dict, not None" in said


def test_a_fault_that_never_struck_is_an_error_of_the_test(outcomes: Outcomes) -> None:
    """Told at its end; the broker is closed all the same."""
    found = of(outcomes, "test_unstruck")
    assert "the fault never struck: refuse Fetch/Produce with NOT_LEADER" in found["test_unstruck"]
    assert "passed" == found["test_the_next_one"]


def test_it_works_with_unittest(outcomes: Outcomes) -> None:
    """By a fixture of the class, or by the test case that needs no pytest."""
    found = of(outcomes, "test_unittest")
    assert "the fault never struck" in found.pop("test_unstruck")
    assert {"test_fixture": "passed", "test_topics": "passed", "test_clean": "passed"} == found


def test_it_works_where_pytest_asyncio_is_automatic(tmp_path: Path) -> None:
    """Without a mark at any test."""
    found = run_pytest(tmp_path, {"test_auto": ASYNC_TESTS.format(mark="")}, mode="auto")
    assert [("passed", "")] * 2 == list(found.values())


def test_it_works_with_xdist(tmp_path: Path) -> None:
    """Each worker has brokers of its own, also those for the session."""
    text = """
import os, pathlib, pytest

@pytest.mark.parametrize("number", range(6))
def test(kgw_server, kgw_broker, number):
    assert all(name.startswith(f"of-{os.getpid()}-") for name in kgw_server.topics())
    kgw_server.create_topics(f"of-{os.getpid()}-{number}")
    pathlib.Path(f"worker-{os.getpid()}").touch()
"""
    found = run_pytest(tmp_path, {"test_xdist": text}, "-n2", "--dist=load")
    assert [("passed", "")] * 6 == list(found.values())
    assert 2 == len(list(tmp_path.glob("worker-*")))


def test_pytest_imports_nothing_else_at_its_start() -> None:
    """The server waits until a test asks for a fixture."""
    code = (
        "import json, sys, pytest; before = set(sys.modules); import kgw.testing.plugin; "
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    assert ["kgw", "kgw.testing", "kgw.testing.plugin"] == json.loads(said.stdout)


def test_markers_are_made_known(pytestconfig: pytest.Config) -> None:
    """So that `--strict-markers` takes them, and `pytest --markers` lists them."""
    known = pytestconfig.getini("markers")
    assert [] == [form for form in MARKERS if not any(one.startswith(form) for one in known)]
