"""Reads dates and names from the DER encoding of a certificate. Pure.

Java's form of a name depends on the types of its strings, and on the bytes of attributes that
OpenSSL does not know. The tuples of Python's `ssl` have neither.
"""

from __future__ import annotations

from datetime import UTC, datetime
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

_OBJECT_IDENTIFIER: Final = 0x06
_UTC_TIME: Final = 0x17
_GENERALIZED_TIME: Final = 0x18
_SEQUENCE: Final = 0x30
_SET: Final = 0x31
_OCTET_STRING: Final = 0x04
_VERSION: Final = 0xA0
_EXTENSIONS: Final = 0xA3
_DNS_NAME: Final = 0x82
_IP_ADDRESS: Final = 0x87
_ALTERNATIVE_NAMES: Final = "2.5.29.17"

_STRING_TAGS: Final = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E})
"""UTF8String, PrintableString, T61String, IA5String, GeneralString, BMPString.

Java writes the values of other types as their DER in hex."""

_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
"""The attribute types that RFC 2253 has a keyword for. Java writes others as numbers."""

_ESCAPED: Final = frozenset(',=+<>#;"\\')
_MAX_NAME_CHARACTERS: Final = 8_192


class Certificate(NamedTuple):
    """The fields of a certificate that kgw reads."""

    issuer: bytes
    """DER."""
    subject: bytes
    """DER."""
    not_before_s: float
    not_after_s: float


class HostNames(NamedTuple):
    """The hosts that a server's certificate is for: its subjectAltName."""

    dns: tuple[str, ...]
    """They may begin with `*.`."""
    addresses: tuple[str, ...]

    def __str__(self) -> str:
        """Return all of them, with commas."""
        return ", ".join((*self.dns, *self.addresses)) or "no host"

    def covers(self, host: str) -> bool:
        """Return whether a client that connects to this host accepts the certificate (RFC 6125).

        `*` stands for one whole label, the first. An IP address is compared with addresses alone.
        """
        try:
            address = ip_address(host)
        except ValueError:
            wanted = host.lower().removesuffix(".")
            rest = wanted.partition(".")[2]
            names = {one.lower().removesuffix(".") for one in self.dns}
            return wanted in names or ("." in rest and f"*.{rest}" in names)
        return any(address == ip_address(one) for one in self.addresses)


class _Element(NamedTuple):
    tag: int
    content: bytes
    encoded: bytes


def read_certificate(der: bytes) -> Certificate:
    """Read a certificate. Raises ValueError if these bytes are none."""
    try:
        (certificate,) = _elements(der)
        signed = next(_children(certificate, _SEQUENCE))
        fields = _children(signed, _SEQUENCE)
        # The version may be absent; the serial number and the algorithm are there.
        if next(fields).tag == _VERSION:
            next(fields)
        next(fields)
        issuer, validity, subject = next(fields), next(fields), next(fields)
        not_before, not_after = _children(validity, _SEQUENCE)
    except StopIteration:
        raise ValueError("the certificate ends too early") from None
    return Certificate(issuer.encoded, subject.encoded, _time_s(not_before), _time_s(not_after))


def read_host_names(der: bytes) -> HostNames:
    """Return the hosts that a certificate is for. Raises ValueError if these bytes are none."""
    (certificate,) = _elements(der)
    signed = next(_children(certificate, _SEQUENCE), None)
    if signed is None:
        raise ValueError("the certificate ends too early")
    dns: list[str] = []
    addresses: list[str] = []
    for field in _children(signed, _SEQUENCE):
        for extensions in _children(field, _EXTENSIONS) if field.tag == _EXTENSIONS else ():
            for extension in _children(extensions, _SEQUENCE):
                identifier, *_, value = _children(extension, _SEQUENCE)
                if _dotted(identifier) != _ALTERNATIVE_NAMES or value.tag != _OCTET_STRING:
                    continue
                (names,) = _elements(value.content)
                for name in _children(names, _SEQUENCE):
                    if name.tag == _DNS_NAME:
                        dns.append(name.content.decode("ascii"))
                    elif name.tag == _IP_ADDRESS:
                        addresses.append(str(ip_address(name.content)))
    return HostNames(tuple(dns), tuple(addresses))


def distinguished_name(name: bytes) -> str:
    """Return a name in the form of RFC 2253, as Java's `X500Principal.getName()` writes it.

    The most specific attribute comes first: `CN=alice,OU=users`. Raises ValueError if the bytes are
    no name, or contain a string that is not UTF-8.
    """
    (sequence,) = _elements(name)
    parts = [
        "+".join(_attribute(one) for one in _children(relative, _SET))
        for relative in _children(sequence, _SEQUENCE)
    ]
    text = ",".join(reversed(parts))
    if len(text) > _MAX_NAME_CHARACTERS:
        raise ValueError(f"the name has {len(text)} characters: at most {_MAX_NAME_CHARACTERS}")
    return text


def _attribute(element: _Element) -> str:
    """Return `CN=alice`."""
    try:
        object_identifier, value = _children(element, _SEQUENCE)
    except ValueError:
        raise ValueError("an attribute of the name has not one type and one value") from None
    number = _dotted(object_identifier)
    keyword = _KEYWORDS.get(number)
    if keyword is None:
        return f"{number}=#{value.encoded.hex()}"
    if value.tag not in _STRING_TAGS:
        return f"{keyword}=#{value.encoded.hex()}"
    return f"{keyword}={_escape(value.content.decode())}"


def _escape(value: str) -> str:
    """Escape the characters that Java escapes, which are more than RFC 2253 demands."""
    pieces = [f"\\{one}" if one in _ESCAPED else one for one in value]
    end = len(value.rstrip(" \r"))
    start = len(value) - len(value.lstrip(" \r"))
    for position, one in enumerate(value):
        if not start <= position < end:
            pieces[position] = f"\\{one}"
    return "".join(pieces).replace("\0", "\\00")


def _dotted(element: _Element) -> str:
    if element.tag != _OBJECT_IDENTIFIER or not element.content or element.content[-1] & 0x80:
        raise ValueError("an attribute of the name has no type")
    numbers: list[int] = []
    number = 0
    for one in element.content:
        number = number << 7 | one & 0x7F
        if not one & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _time_s(element: _Element) -> float:
    """Return seconds since 1970. RFC 5280 allows one form of each type."""
    text = element.content.decode("ascii")
    if element.tag == _UTC_TIME:
        text = ("20" if text < "50" else "19") + text
    elif element.tag != _GENERALIZED_TIME:
        raise ValueError("the certificate has no dates")
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()


def _children(element: _Element, tag: int) -> Iterator[_Element]:
    if element.tag != tag:
        raise ValueError(f"the certificate has tag {element.tag:#x} in place of {tag:#x}")
    return _elements(element.content)


def _elements(data: bytes) -> Iterator[_Element]:
    """Yield the elements of DER, of which the last one must end where the data ends."""
    position = 0
    while position < len(data):
        begin = position
        tag, length = data[begin], int.from_bytes(data[begin + 1 : begin + 2])
        position += 2
        if length & 0x80:
            size = length & 0x7F
            length = int.from_bytes(data[position : position + size])
            position += size
        if position + length > len(data) or position > len(data):
            raise ValueError("the certificate ends too early")
        yield _Element(tag, data[position : position + length], data[begin : position + length])
        position += length
