"""Altered SCRAM logins: none is accepted."""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import TYPE_CHECKING

import pytest

from kgw.security.sasl.errors import AuthenticationFailed
from kgw.security.sasl.scram import ScramCredential, ScramMechanism
from kgw.security.sasl.scram_messages import MAX_NAME_BYTES
from tests.security.sasl.logins import (
    MECHANISMS,
    NAMES,
    NONCE,
    PASSWORD,
    SERVER_NONCE,
    attempt,
    credential_of,
    open_scram,
    valid_messages,
)
from tests.security.sasl.scram_client import ScramClient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SHA_256 = ScramMechanism.SHA_256
BOTH = NONCE + SERVER_NONCE


def damaged(message: bytes) -> Iterator[bytes]:
    """Truncate, change, repeat and insert at each byte."""
    for at in range(len(message)):
        start, one, rest = message[:at], message[at], message[at + 1 :]
        yield start
        yield start + rest
        for other in (one ^ 1, one ^ 0x20, 0, 0xFF):
            yield start + bytes([other]) + rest
        for more in (bytes([one]), b"\0", b",", b"=", b"\n"):
            yield start + bytes([one]) + more + rest


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=NAMES)
def test_no_damaged_message_is_accepted(mechanism: ScramMechanism) -> None:
    """Thousands of alterations by somebody between client and server: none is accepted."""
    first, final = valid_messages(mechanism)
    assert attempt(open_scram(mechanism), first, final) is None
    altered = [(one, final) for one in damaged(first)] + [(first, one) for one in damaged(final)]
    accepted = [pair for pair in altered if attempt(open_scram(mechanism), *pair) is None]
    assert len(altered) > 1500
    assert accepted == []


HEADERS = [
    "p=tls-unique,,",
    "p=tls-exporter,,",
    "p=,,",
    "p,,",
    "N,,",
    "Y,,",
    "z,,",
    ",,",
    "nn,,",
    "F,n,,",
    "n,",
    "n",
    "",
    " n,,",
    "n,a=bob,",
    "n,a=Alice,",
    "n,a=alice ,",
    "n,a=,",
    "n,a,",
    "n,alice,",
    "n,b=alice,",
    "n,a=alice=,",
    "n,a=alice=2D,",
    "n,a=alice\0,",
    "n,a=alice,a=bob,",
    "y,a=bob,",
]
BARES = [
    f"m=1,n=alice,r={NONCE}",
    f"n=alice,m=1,r={NONCE}",
    f"n=alice,r={NONCE},m=1",
    f"r={NONCE},n=alice",
    "n=alice",
    f"r={NONCE}",
    "",
    f"n=,r={NONCE}",
    "n=alice,r=",
    f"N=alice,r={NONCE}",
    f"n=alice,R={NONCE}",
    f"a=alice,r={NONCE}",
    f"n=bob,n=alice,r={NONCE}",
    f"n=alice,n=alice,r={NONCE}",
    f"n=alice,r={NONCE},n=alice",
    f"n=alice,r={NONCE},r={NONCE}",
    f"n=alice,r={NONCE},a=alice",
    f"n=alice,r={NONCE},c=biws",
    f"n=alice,r={NONCE},p=YQ==",
    f"n=alice,r={NONCE},s=YQ==",
    f"n=alice,r={NONCE},i=1",
    f"n=alice,r={NONCE},",
    f"n=alice,r={NONCE},x",
    f"n=alice,r={NONCE},x=",
    f"n=alice,r={NONCE},=x",
    f"n=alice,r={NONCE},1=x",
    f"n=alice,r={NONCE},x=1,x=2",
    f"n=alice,r={NONCE},x=\0",
    f"n=alice,r={NONCE},tokenauth=true",
    f"n=alice,r={NONCE},tokenauth=yes",
    f"n=alice,r={NONCE},tokenauth=",
    f"n=alice,r={NONCE},tokenauth=false,tokenauth=true",
    f"n=alice\0,r={NONCE}",
    f"n=\0alice,r={NONCE}",
    f"n=al\0ice,r={NONCE}",
    f"n=alice=,r={NONCE}",
    f"n=alice=2c,r={NONCE}",
    f"n=alice=3d,r={NONCE}",
    f"n=alice=20,r={NONCE}",
    f"n==61lice,r={NONCE}",
    f"n={'alice' * 2000},r={NONCE}",
    f"n={'x' * (MAX_NAME_BYTES + 1)},r={NONCE}",
    f"n=alice,r={NONCE}\n",
    f"n=alice,r= {NONCE}",
    f"n=alice,r={NONCE}\x7f",
    f"n=alice,r={NONCE}\u00e9",
    f"n=alice,r={'x' * 257}",
    f" n=alice,r={NONCE}",
    f"n=alice;r={NONCE}",
]


class Everybody(dict[str, ScramCredential]):
    """Users of all names, with one password: so no alteration is refused for its name."""

    def __missing__(self, user: str) -> ScramCredential:
        return credential_of(SHA_256)


def refusal_of(header: str, bare: str) -> AuthenticationFailed | None:
    """Log in with the right password and this first message, with a proof of what was sent."""
    exchange = open_scram(SHA_256, Everybody())
    client = ScramClient("SCRAM-SHA-256", PASSWORD, header=header, bare=bare)
    try:
        server_first = exchange.respond(client.first())
    except AuthenticationFailed as error:
        return error
    return attempt(exchange, client.final(server_first))


def test_everybody_logs_in() -> None:
    """Else the tables below would prove nothing."""
    for user in ["alice", "Alice", " alice"]:
        assert refusal_of("n,,", f"n={user},r={NONCE}") is None


@pytest.mark.parametrize("header", HEADERS)
def test_no_other_header_is_accepted(header: str) -> None:
    """Of a client with the right password, whose proof is right for what it sends."""
    assert refusal_of(header, f"n=alice,r={NONCE}") is not None


@pytest.mark.parametrize("bare", BARES, ids=range(len(BARES)))
def test_no_other_first_message_is_accepted(bare: str) -> None:
    """Of a client with the right password, whose proof is right for what it sends."""
    assert refusal_of("n,,", bare) is not None


@pytest.mark.parametrize(
    ("header", "bare", "reason"),
    [
        ("p=tls-unique,,", f"n=alice,r={NONCE}", "the client demands channel binding"),
        ("n,a=bob,", f"n=alice,r={NONCE}", "the client asks for the identity of another user"),
        ("n,,", f"m=1,n=alice,r={NONCE}", "the client demands an unknown extension"),
        ("n,,", f"n=alice,n=bob,r={NONCE}", "the message repeats an attribute"),
        ("n,,", f"n={'x' * 2000},r={NONCE}", "a name is too long"),
        ("n,,", f"n={'x' * 10_000},r={NONCE}", "the message is too long"),
        ("n,,", f"n=alice,r={'x' * 257}", "a nonce is not 1 to 256 printable characters"),
    ],
)
def test_a_first_message_is_refused_at_once(header: str, bare: str, reason: str) -> None:
    """The server answers with nothing of the user before it has checked the whole message."""
    client = ScramClient("SCRAM-SHA-256", PASSWORD, header=header, bare=bare)
    with pytest.raises(AuthenticationFailed) as caught:
        open_scram(SHA_256).respond(client.first())
    assert caught.value.reason == reason


@pytest.mark.parametrize("user", ["Alice", " alice", "alice ", "alic", "alice2", "a=2Clice"])
def test_another_name_is_another_user(user: str) -> None:
    """Names are compared as they are, case included."""
    client = ScramClient("SCRAM-SHA-256", PASSWORD, bare=f"n={user},r={NONCE}")
    exchange = open_scram(SHA_256)
    error = attempt(exchange, client.final(exchange.respond(client.first())))
    assert error is not None
    assert error.reason == "the user or the token is unknown"


def binding(header: bytes) -> dict[str, str]:
    """Return the alteration that sends another header in the final message."""
    return {"binding": b64encode(header).decode()}


FINALS: dict[str, dict[str, str]] = {
    "only the client's nonce": {"nonce": NONCE},
    "only the server's nonce": {"nonce": SERVER_NONCE},
    "another client's nonce before the server's": {"nonce": "x" * len(NONCE) + SERVER_NONCE},
    "more before the nonce": {"nonce": f"x{BOTH}"},
    "more after the nonce": {"nonce": f"{BOTH}x"},
    "less before the nonce": {"nonce": BOTH[1:]},
    "less after the nonce": {"nonce": BOTH[:-1]},
    "nonce in capitals": {"nonce": BOTH.upper()},
    "a space before the nonce": {"nonce": f" {BOTH}"},
    "the nonces swapped": {"nonce": SERVER_NONCE + NONCE},
    "the nonce twice": {"nonce": BOTH + BOTH},
    "no nonce": {"nonce": ""},
    "another server's nonce": {"nonce": NONCE + SERVER_NONCE[::-1]},
    "channel flag y": binding(b"y,,"),
    "channel flag p": binding(b"p=tls-unique,,"),
    "another identity in the header": binding(b"n,a=bob,"),
    "the same identity in the header": binding(b"n,a=alice,"),
    "channel data": binding(b"n,,data"),
    "header without comma": binding(b"n,"),
    "no channel binding": {"binding": ""},
    "header not in base64": {"binding": "n"},
    "channel binding with padding": {"binding": "biws="},
    "channel binding with a space": {"binding": "biws "},
    "channel binding in capitals": {"binding": "BIWS"},
    "nonce first": {"template": "r={nonce},c={binding},p={proof}"},
    "no channel attribute": {"template": "r={nonce},p={proof}"},
    "no nonce attribute": {"template": "c={binding},p={proof}"},
    "an empty extension": {"template": "c={binding},r={nonce},,p={proof}"},
    "mandatory extension": {"template": "c={binding},r={nonce},m=1,p={proof}"},
    "mandatory extension first": {"template": "m=1,c={binding},r={nonce},p={proof}"},
    "another user": {"template": "c={binding},r={nonce},n=bob,p={proof}"},
    "an identity": {"template": "c={binding},r={nonce},a=bob,p={proof}"},
    "two channel attributes": {"template": "c={binding},c={binding},r={nonce},p={proof}"},
    "two nonces": {"template": "c={binding},r={nonce},r={nonce},p={proof}"},
    "two proofs": {"template": "c={binding},r={nonce},p=YQ==,p={proof}"},
    "two extensions of a name": {"template": "c={binding},r={nonce},x=1,x=2,p={proof}"},
    "an extension with NUL": {"template": "c={binding},r={nonce},x=\0,p={proof}"},
    "a proof in capitals": {"template": "c={binding},r={nonce},P={proof}"},
    "a space before the proof": {"template": "c={binding},r={nonce},p= {proof}"},
    "a newline after the proof": {"template": "c={binding},r={nonce},p={proof}\n"},
    "padding after the proof": {"template": "c={binding},r={nonce},p={proof}="},
    "more after the proof": {"template": "c={binding},r={nonce},p={proof}AAAA"},
    "a comma after the proof": {"template": "c={binding},r={nonce},p={proof},"},
    "a long extension": {"template": f"c={{binding}},r={{nonce}},x={'x' * 9000},p={{proof}}"},
}


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=NAMES)
@pytest.mark.parametrize("change", FINALS.values(), ids=FINALS)
def test_no_other_final_message_is_accepted(
    mechanism: ScramMechanism, change: dict[str, str]
) -> None:
    """Of a client with the right password, whose proof is right for what it sends."""
    client = ScramClient(mechanism.sasl_name, PASSWORD)
    exchange = open_scram(mechanism)
    final = client.final(exchange.respond(client.first()), **change)
    assert attempt(exchange, final) is not None


def other_padding(proof: str) -> str:
    """Return a text that lenient decoders read as the same bytes."""
    last = proof.rstrip("=")[-1]
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    return proof.replace(f"{last}=", f"{alphabet[alphabet.index(last) ^ 1]}=")


def of_bytes(change: Callable[[bytes], bytes]) -> Callable[[str], str]:
    """Return the change of the text that makes this change of the bytes."""
    return lambda proof: b64encode(change(b64decode(proof))).decode()


PROOFS: dict[str, Callable[[str], str]] = {
    "no proof": lambda _: "",
    "no bytes": lambda _: "====",
    "zeros": of_bytes(lambda proof: bytes(len(proof))),
    "a byte less": of_bytes(lambda proof: proof[:-1]),
    "half": of_bytes(lambda proof: proof[:16]),
    "a byte more": of_bytes(lambda proof: proof + b"\0"),
    "twice": of_bytes(lambda proof: proof * 2),
    "the last bit": of_bytes(lambda proof: proof[:-1] + bytes([proof[-1] ^ 1])),
    "the first bit": of_bytes(lambda proof: bytes([proof[0] ^ 128]) + proof[1:]),
    "reversed": of_bytes(lambda proof: proof[::-1]),
    "the stored key": of_bytes(lambda _: credential_of(SHA_256).stored_key),
    "the server key": of_bytes(lambda _: credential_of(SHA_256).server_key),
    "no padding": lambda proof: proof.rstrip("="),
    "other padding": other_padding,
    "not ASCII": lambda proof: f"{proof[:-2]}\u00e9=",
    "a line break": lambda proof: f"{proof[:20]}\n{proof[20:]}",
}


@pytest.mark.parametrize("change", PROOFS.values(), ids=PROOFS)
def test_no_other_proof_is_accepted(change: Callable[[str], str]) -> None:
    """Nor the right one in another spelling."""
    first, final = valid_messages(SHA_256)
    start, _, proof = final.decode().rpartition(",p=")
    altered = change(proof)
    assert altered != proof
    assert attempt(open_scram(SHA_256), first, f"{start},p={altered}".encode()) is not None


@pytest.mark.parametrize(
    "message", [b"", b"\0", b"\xff\xfe", b"n,,n=\xffalice,r=x", b"n,,n=\xed\xa0\x80,r=x"]
)
def test_bytes_that_are_not_text_are_refused(message: bytes) -> None:
    """As the first message, and as the final one."""
    first, _ = valid_messages(SHA_256)
    assert attempt(open_scram(SHA_256), message) is not None
    assert attempt(open_scram(SHA_256), first, message) is not None
