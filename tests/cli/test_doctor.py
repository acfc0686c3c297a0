from __future__ import annotations

import json
import socket
import threading
from typing import TYPE_CHECKING

import pytest

from kgw.cli.doctor import doctor
from kgw.cli.doctor.connecting import Listening, ServedCertificate
from kgw.cli.doctor.examination import Examination, Reach, TopicReadResult, find_problems
from kgw.cli.shared.errors import ExitCode
from kgw.client import (
    AdvertisedBroker,
    ApiSupport,
    ClusterDescription,
    PartitionDescription,
    TopicDescription,
)
from kgw.problems import BATCH_ROOM, HELD
from kgw.security.tls.x509 import HostNames
from kgw.types import ZERO_TOPIC_ID, TopicName
from tests.client.serving import ServerThread
from tests.findings import findings_of, unplanted

if TYPE_CHECKING:
    from tests.cli.conftest import Commands


def test_a_healthy_server_has_no_problems(kgw: Commands) -> None:
    """Everything that a client needs is shown, and nothing is wrong."""
    found = kgw.json("doctor", kgw.bootstrap)
    assert [] == found["problems"]
    assert [True] == [broker["reachable"] for broker in found["brokers"]]
    spoken = {api["name"]: api["spoken"] for api in found["apis"]}
    assert (13, 18, 13) == (spoken["Produce"], spoken["Fetch"], spoken["Metadata"])
    text = kgw.succeed("doctor")
    assert "No problems found." in text
    topics = found["topics"]
    assert f"\n{topics} topic{'s' * (topics != 1)} with " in text
    assert "Produce" in text


def test_an_advertised_address_that_nobody_reaches_is_a_problem(offline: Commands) -> None:
    """The mistake most often made is named with its remedy."""
    with ServerThread(advertised_listeners=("127.0.0.1:1",)) as server:
        result = offline.run("doctor", server.address)
        assert ExitCode.FAILED == result.exit_code
        assert "advertises 127.0.0.1:1, which cannot be used from here" in result.stdout
        assert "--advertise" in result.stdout


def test_what_the_server_says_is_wrong_is_told(offline: Commands) -> None:
    """What refuses records is a problem, and what does no harm a note; no admin side is needed."""
    with ServerThread() as server:
        server.gateway.refusals.note(HELD, "orders-0 keeps more")
        result = offline.run("doctor", server.address)
        assert ExitCode.OK == result.exit_code
        assert "note: the server says (held): orders-0 keeps more\nNo problems" in result.stdout
        server.gateway.refusals.note(BATCH_ROOM, "90 bytes were refused")
        result = offline.run("doctor", server.address, "--json")
        assert ExitCode.FAILED == result.exit_code
        found = json.loads(result.stdout)
        assert ["the server says (batch-room): 90 bytes were refused"] == found["problems"]
        assert ["held", "batch-room"] == [one["reason"] for one in found["told"]]


def test_what_is_no_kafka_server_is_named(offline: Commands) -> None:
    """A web server at the address is recognised as one."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        port = listener.getsockname()[1]
        message = offline.fail(ExitCode.CANNOT_CONNECT, "doctor", f"127.0.0.1:{port}")
        thread.join()
    assert "speaks HTTP, not Kafka" in message


def test_nothing_there_is_told(offline: Commands) -> None:
    """A closed port and a word that is no address."""
    assert "connection refused" in offline.fail(ExitCode.CANNOT_CONNECT, "doctor", "127.0.0.1:1")
    assert "not a port" in offline.fail(ExitCode.USAGE, "doctor", "127.0.0.1:x")


def test_an_api_that_the_client_does_not_know_has_no_versions_of_it(
    kgw: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a server that is newer: a dash stands for them, and it is no problem."""
    apis = [*examined(HEALTHY).apis, ApiSupport(900, "Unknown", 0, 1, None, None, None)]
    monkeypatch.setattr(doctor, "api_support", lambda _: apis)
    rows = [line.split() for line in kgw.succeed("doctor").splitlines()]
    assert [["900", "Unknown", "0-1", "-", "-"]] == [row for row in rows if row[:1] == ["900"]]


def examined(
    *brokers: AdvertisedBroker,
    apis: list[ApiSupport] | None = None,
    leader_id: int = 0,
    topic: str = "events",
    is_internal: bool = False,
) -> Examination:
    """Return what was found out about a server whose brokers all answer."""
    partition = PartitionDescription(0, leader_id, 0, (0,), (0,))
    described = TopicDescription(TopicName(topic), ZERO_TOPIC_ID, is_internal, (partition,))
    essential = [
        ApiSupport(key, name, 0, 5, 0, 5, 5)
        for key, name in enumerate(("Produce", "Fetch", "ListOffsets", "Metadata"))
    ]
    return Examination(
        "kgw.example:9092",
        ClusterDescription("id", 0, brokers),
        essential if apis is None else apis,
        [Reach(broker, None) for broker in brokers],
        [described],
    )


HEALTHY = AdvertisedBroker(0, "kgw.example", 9092)
WRONG = {
    "the server advertises no broker: clients have nowhere to go": examined(),
    "node 0 advertises 0.0.0.0:9092, which is no address to connect to: start the server with "
    "--advertise HOST:PORT": examined(AdvertisedBroker(0, "0.0.0.0", 9092)),
    "node 0 advertises kgw.example:9092, which cannot be used from here: refused; start the server "
    "with --advertise and an address that clients reach": examined(HEALTHY)._replace(
        reaches=[Reach(HEALTHY, "refused")]
    ),
    "node 0 advertises kgw.example:9092, and the server's certificate is for other.example: start "
    "the server with --advertise and one of these, or put a certificate for kgw.example into its "
    "ssl.keystore.location": examined(HEALTHY)._replace(
        reaches=[
            Reach(
                HEALTHY,
                "not trusted",
                Listening(
                    "kgw.example:9092",
                    "kgw.example",
                    has_tls=True,
                    certificate=ServedCertificate(
                        HostNames(("other.example",), ()), "CN=a", "CN=b", 0.0, 1.0
                    ),
                    distrust="name",
                ),
                ("the certificate is for other.example",),
            )
        ]
    ),
    "node 0 advertises kgw.example:9092: it asks for a login": examined(HEALTHY)._replace(
        reaches=[Reach(HEALTHY, "closed", None, ("it asks for a login",))]
    ),
    "node 0 advertises localhost:9092: clients on other machines would connect to themselves; "
    "start the server with --advertise HOST:PORT": examined(AdvertisedBroker(0, "localhost", 9092)),
    "the server does not serve Fetch": examined(
        HEALTHY, apis=[one for one in examined(HEALTHY).apis if one.name != "Fetch"]
    ),
    "no version of Vote is known on both sides": examined(
        HEALTHY, apis=[*examined(HEALTHY).apis, ApiSupport(52, "Vote", 20, 21, 0, 18, None)]
    ),
    "topic events partition 0 has no leader": examined(HEALTHY, leader_id=-1),
    "topic __consumer_offsets is an ordinary one that holds records, where tools look for Kafka's: "
    "copy what it holds to another topic, then kgw topics delete __consumer_offsets": examined(
        HEALTHY, topic="__consumer_offsets"
    ),
    "topic events cannot be read": examined(HEALTHY)._replace(
        read=(TopicReadResult("events", 0, ["topic events cannot be read"]),)
    ),
    "the server says (room): 3 bytes are free where 9 are needed": examined(HEALTHY)._replace(
        told=(("room", "3 bytes are free where 9 are needed"), ("held", "it waits for a group"))
    ),
}


@pytest.mark.parametrize("expected", WRONG)
def test_each_mistake_is_named_alone(expected: str) -> None:
    """What keeps clients from working is a problem, in words; nothing else is said."""
    assert [expected] == find_problems(WRONG[expected], "kgw.example")


def test_each_sentence_of_the_doctor_is_planted() -> None:
    """Who adds a kind of problem adds an examination that has it here."""
    assert 11 == len(findings_of(find_problems))
    assert [] == unplanted([find_problems], WRONG)


def test_an_internal_topic_is_no_problem() -> None:
    """What is wrong with the name is an ordinary topic behind it."""
    healthy = examined(HEALTHY, topic="__consumer_offsets", is_internal=True)
    assert [] == find_problems(healthy, "kgw.example")


def test_a_server_on_another_machine_can_be_healthy() -> None:
    """An address that others reach is no problem."""
    assert [] == find_problems(examined(AdvertisedBroker(0, "kgw.example", 9092)), "kgw.example")
