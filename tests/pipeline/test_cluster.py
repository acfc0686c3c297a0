"""A cluster: what tasks get to connect, and what is said when they cannot."""

from __future__ import annotations

import platform
import sys
from typing import TYPE_CHECKING

import pytest

from kgw.client import TlsError
from kgw.pipeline.cluster import Cluster
from kgw.pipeline.errors import OptionError
from kgw.testing.broker import Broker
from tests.client.certificates import make_authority

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CANARY = "c4nary-s3cret"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """A broker with TLS and a user."""
    security = {"protocol": "SASL_SSL", "users": {"alice": CANARY}}
    with Broker(topics="orders", security=security) as made:
        yield made


def test_a_client_connects_by_the_properties(broker: Broker) -> None:
    """With the files that they name on this machine."""
    with Cluster(broker.bootstrap, broker.client_config("alice")).client(retry_s=0) as wire:
        assert ["orders"] == [topic.name for topic in wire.topics()]


def test_no_secret_is_shown() -> None:
    """Neither by the cluster nor by an object that has one."""
    properties = {"security.protocol": "SASL_SSL", "sasl.password": CANARY}
    assert "Cluster(bootstrap='h:1', prefix='')" == repr(Cluster("h:1", properties))


def test_a_file_that_a_machine_lacks_is_an_error_with_its_name(tmp_path: Path) -> None:
    """It is found by the client, not before: the driver need not have the files of tasks."""
    path = tmp_path / "ssl.key.location"
    properties = {"security.protocol": "SSL", "ssl.truststore.location": str(path)}
    cluster = Cluster("h:1", properties, "kafka.")
    cluster.check()
    with pytest.raises(OptionError) as raised:
        cluster.client()
    assert (
        f"kafka.ssl.truststore.location: cannot read {path}: no such file or directory (on "
        f"{platform.node()})"
    ) == str(raised.value)


def test_an_extra_that_a_machine_lacks_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says what to install."""
    for name in [one for one in sys.modules if one.startswith("cryptography")]:
        monkeypatch.setitem(sys.modules, name, None)
    path = tmp_path / "trust.p12"
    path.write_bytes(b"\x30\x00")
    properties = {"security.protocol": "SSL", "ssl.truststore.location": str(path)}
    with pytest.raises(OptionError, match=r"needs the package cryptography.*on .*kgw-broker\[tls"):
        Cluster("h:1", properties).client()


def test_an_authority_that_is_not_trusted_ends_the_call(broker: Broker) -> None:
    """At once: another attempt would not help."""
    strange = broker.client_config("alice") | {"ssl.ca.pem": make_authority().pem}
    with (
        Cluster(broker.bootstrap, strange).client() as wire,
        pytest.raises(TlsError, match=r"is not trusted.*ssl\.truststore\.location"),
    ):
        wire.find_topic("orders")


@pytest.mark.parametrize(
    ("cluster", "said"),
    [
        (Cluster("h"), "kafka.bootstrap.servers: .* has no port"),
        (Cluster("h:1", {"ssl.key.location": "x"}), "^ssl.key.location: it has no effect without"),
        (
            Cluster("h:1", {"ssl.key.location": "x"}, "kafka."),
            "^kafka.ssl.key.location: it has no effect without kafka.security.protocol",
        ),
    ],
)
def test_what_no_machine_can_use_is_refused(cluster: Cluster, said: str) -> None:
    """Before anything is sent to tasks; names are those that users write."""
    with pytest.raises(OptionError, match=said):
        cluster.check()
