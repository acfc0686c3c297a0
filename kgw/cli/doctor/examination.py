"""The facts that `kgw doctor` has found about one server, and the problems in them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.config.listeners import format_address
from kgw.partitions.topics.topic import INTERNAL_TOPICS
from kgw.problems import REASONS

if TYPE_CHECKING:
    from kgw.cli.doctor.connecting import Listening
    from kgw.cli.doctor.security import SecurityAnswers
    from kgw.client import AdvertisedBroker, ApiSupport, ClusterDescription, TopicDescription

_EVERY_ADDRESS: Final = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 - recognised, not bound
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
HARMLESS: Final = frozenset(reason.name for reason in REASONS if not reason.refuses)
"""The names of the reasons for which no record is refused."""
# No client can work with a server that lacks one of these APIs.
_ESSENTIAL: Final = ("Produce", "Fetch", "ListOffsets", "Metadata")


class Reach(NamedTuple):
    """An advertised address, and the error of connecting to it; None if it answered."""

    broker: AdvertisedBroker
    failure: str | None
    found: Listening | None = None
    """The facts about an address that cannot be used."""
    reasons: tuple[str, ...] = ()
    """Why it cannot be used, as far as that is known."""


class Validation(NamedTuple):
    """The setting kgw.validation: which part of a batch is checked before the batch is stored."""

    default: str
    topics: dict[str, str]
    """The topics with another value than the default, and their values."""


class TopicReadResult(NamedTuple):
    """The result of reading a topic."""

    topic: str
    records: int
    problems: list[str]


class Examination(NamedTuple):
    """Everything that was found out about one server."""

    address: str
    cluster: ClusterDescription
    apis: list[ApiSupport]
    reaches: list[Reach]
    topics: list[TopicDescription]
    validation: Validation | None = None
    """None if the server does not report the setting."""
    read: tuple[TopicReadResult, ...] = ()
    told: tuple[tuple[str, str], ...] = ()
    """The problems that the server itself reports, each as a reason and a sentence."""
    answers: SecurityAnswers | None = None


def find_problems(examination: Examination, host: str) -> list[str]:
    """Return the problems that keep clients from working; the server was reached at `host`."""
    problems = []
    if not examination.cluster.brokers:
        problems.append("the server advertises no broker: clients have nowhere to go")
    for broker, failure, found, reasons in examination.reaches:
        place = format_address(broker.host, broker.port)
        certificate = None if found is None else found.certificate
        if broker.host in _EVERY_ADDRESS:
            problems.append(
                f"node {broker.node_id} advertises {place}, which is no address to connect to: "
                "start the server with --advertise HOST:PORT"
            )
        elif found is not None and found.distrust == "name" and certificate is not None:
            problems.append(
                f"node {broker.node_id} advertises {place}, and the server's certificate is for "
                f"{certificate.hosts}: start the server with --advertise and one of these, or put "
                f"a certificate for {broker.host} into its ssl.keystore.location"
            )
        elif reasons:
            problems += [f"node {broker.node_id} advertises {place}: {one}" for one in reasons]
        elif failure is not None:
            problems.append(
                f"node {broker.node_id} advertises {place}, which cannot be used from here: "
                f"{failure}; start the server with --advertise and an address that clients reach"
            )
        elif broker.host in _LOOPBACK and host not in _LOOPBACK:
            problems.append(
                f"node {broker.node_id} advertises {place}: clients on other machines would "
                "connect to themselves; start the server with --advertise HOST:PORT"
            )
    known = {api.name: api for api in examination.apis}
    problems += [
        f"topic {one.name} is an ordinary one that holds records, where tools look for Kafka's: "
        f"copy what it holds to another topic, then kgw topics delete {one.name}"
        for one in examination.topics
        if one.name in INTERNAL_TOPICS and not one.is_internal
    ]
    problems += [f"the server does not serve {name}" for name in _ESSENTIAL if name not in known]
    problems += [
        f"no version of {api.name} is known on both sides"
        for api in examination.apis
        if api.client_min is not None and api.spoken is None
    ]
    problems += [
        f"topic {topic.name} partition {one.partition} has no leader"
        for topic in examination.topics
        for one in topic.partitions
        if one.leader_id < 0
    ]
    for read in examination.read:
        problems += read.problems
    problems += [
        f"the server says ({reason}): {text}"
        for reason, text in examination.told
        if reason not in HARMLESS
    ]
    return problems
