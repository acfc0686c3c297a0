"""Encode and decode messages: `codec(request_class(ApiKey.PRODUCE), 9).decode(buffer)`.

The module of an API's messages is imported at its first use.

A codec is created at the first use of a (message, version) and kept in the message class. Its
decoder and its encoder are generated source, each compiled at its first call: a server decodes only
requests and encodes only responses.
"""

from __future__ import annotations

import struct
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Generic, TypeVar

from kgw.errors import DecodeError, EncodeError
from kgw.protocol.api_keys import MESSAGE_KEYS, ApiKey
from kgw.protocol.schema import Response

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence

    from kgw.protocol.primitives import Buffer
    from kgw.protocol.schema import Message, Request, Struct

MessageT = TypeVar("MessageT", bound="Message")

# A decoded request may take one megabyte and 16 times its size on the wire; without a limit, 10 MB
# on the wire were measured to take 964 MB. Text takes at most four bytes of memory for a byte on
# the wire, which leaves a factor of twelve for array elements. Objects outside of arrays take the
# part of the megabyte that the allowance leaves.
_REQUEST_MEMORY_FACTOR = 12
# For responses, which come from a broker that the client trusts. Metadata of a large cluster has
# many small elements.
_RESPONSE_MEMORY_FACTOR = 60
_MEMORY_ALLOWANCE_BYTES = 900_000
# The limit for requests of any size: a megabyte of elements takes 3 ms to decode, and a Fetch of
# 20,000 partitions needs four megabytes.
_REQUEST_MEMORY_LIMIT_BYTES = 8_000_000
_RESPONSE_MEMORY_LIMIT_BYTES = 1 << 40

# The exceptions of generated decoders for malformed bytes; `struct` and indexing detect truncation.
_MALFORMED = (DecodeError, struct.error, IndexError)


class Codec(Generic[MessageT]):
    """Encodes and decodes one version of one message."""

    def __init__(self, message: type[MessageT], version: int) -> None:
        first, last = message.valid_versions
        if not first <= version <= last:
            raise ValueError(f"{message.__name__} has versions {first} to {last}, not {version}")
        self.message = message
        self.version = version
        self.flexible = message.flexible_since is not None and version >= message.flexible_since
        self._memory_factor = _REQUEST_MEMORY_FACTOR
        self._memory_limit_bytes = _REQUEST_MEMORY_LIMIT_BYTES
        if issubclass(message, Response):
            self._memory_factor = _RESPONSE_MEMORY_FACTOR
            self._memory_limit_bytes = _RESPONSE_MEMORY_LIMIT_BYTES

    def __repr__(self) -> str:
        return f"<Codec {self.message.__name__} v{self.version}>"

    def decode(self, buffer: Buffer, position: int = 0) -> MessageT:
        """Decode a message that fills the buffer from `position` to its end.

        Strings and byte strings are copied; records are memoryviews of the buffer. Raises
        DecodeError if the bytes are not exactly one such message.
        """
        message, stop = self.decode_prefix(buffer, position)
        if stop != len(buffer):
            raise self._decode_error(DecodeError(f"{len(buffer) - stop} bytes too many"))
        return message

    def decode_prefix(self, buffer: Buffer, position: int = 0) -> tuple[MessageT, int]:
        """Decode a message that other bytes may follow. Return it and the position after it."""
        budget = (len(buffer) - position) * self._memory_factor + _MEMORY_ALLOWANCE_BYTES
        try:
            return self._decode(buffer, position, min(budget, self._memory_limit_bytes))
        except _MALFORMED as error:
            # Without its traceback, whose frames would keep the decoded objects in memory.
            raise self._decode_error(error.with_traceback(None)) from None

    def decode_in_turns(self, buffer: Buffer, position: int = 0) -> Generator[None, None, MessageT]:
        """Decode a message in steps (`kgw.turns`), which other bytes may follow.

        Any step may raise DecodeError.
        """
        budget = (len(buffer) - position) * self._memory_factor + _MEMORY_ALLOWANCE_BYTES
        try:
            message, _ = yield from self._decode_turns(
                buffer, position, min(budget, self._memory_limit_bytes)
            )
        except _MALFORMED as error:
            raise self._decode_error(error.with_traceback(None)) from None
        return message

    def encode(self, message: MessageT) -> bytes:
        """Return the message's bytes.

        Raises EncodeError for a value that this version cannot encode: None in a field that is not
        nullable, a value other than the default in a field that this version lacks and that is not
        ignorable, a number out of range, a string of more than 32,767 bytes.
        """
        return b"".join(self.encode_parts(message))

    def encode_parts(self, message: MessageT) -> list[Buffer]:
        """Return the message's bytes as buffers for one gather write.

        Large records are not copied. Raises EncodeError, see `encode`.
        """
        try:
            return self._encode(message)
        except EncodeError as error:
            raise EncodeError(f"{self.message.__name__} v{self.version}: {error}") from None
        except (AttributeError, TypeError, ValueError, struct.error) as error:
            raise EncodeError(f"{self.message.__name__} v{self.version}: {error}") from error

    @cached_property
    def find_error_codes(self) -> Callable[[Sequence[Struct]], list[int]]:
        """The function that lists the error codes in responses, without NONE."""
        from kgw.protocol.error_codes import error_codes_finder

        return error_codes_finder(self.message, self.version)

    def _decode_error(self, error: Exception) -> DecodeError:
        problem = "truncated"
        if isinstance(error, DecodeError):
            problem = str(error)
        return DecodeError(f"{self.message.__name__} v{self.version}: {problem}")

    @cached_property
    def _decode(self) -> Callable[[Buffer, int, int], tuple[MessageT, int]]:
        from kgw.protocol.decoding import compile_decoder

        return compile_decoder(self.message, self.version, flexible=self.flexible)

    @cached_property
    def _decode_turns(
        self,
    ) -> Callable[[Buffer, int, int], Generator[None, None, tuple[MessageT, int]]]:
        from kgw.protocol.decoding import compile_decoder

        return compile_decoder(self.message, self.version, flexible=self.flexible, in_turns=True)

    @cached_property
    def _encode(self) -> Callable[[MessageT], list[Buffer]]:
        from kgw.protocol.encoding import compile_encoder

        return compile_encoder(self.message, self.version, flexible=self.flexible)


def encode_items(
    message: type[Message], item: type[Struct], version: int
) -> Callable[[Iterable[Struct]], list[Buffer]]:
    """Return a function that encodes structures for an array in a version of a message.

    The function returns the buffers for `EncodedItems`: one buffer, or several if there are large
    records, which are not copied. It raises EncodeError, AttributeError, TypeError, ValueError or
    struct.error for values that cannot be encoded.
    """
    found: Callable[[Iterable[Struct]], list[Buffer]] | None = item.codecs.get(version)
    if found is None:
        from kgw.protocol.encoding import compile_items_encoder

        flexible = codec(message, version).flexible
        found = item.codecs[version] = compile_items_encoder(item, version, flexible=flexible)
    return found


def codec(message: type[MessageT], version: int) -> Codec[MessageT]:
    """Return the codec of a version of a message. Raises ValueError for an unknown version."""
    found: Codec[MessageT] | None = message.codecs.get(version)
    if found is None:
        found = message.codecs[version] = Codec(message, version)
    return found


def request_class(api_key: int) -> type[Request]:
    """Import and return the request class of an API. KeyError if it is not in `MESSAGE_KEYS`."""
    request: type[Request] = _message_class(api_key, "Request")
    return request


def response_class(api_key: int) -> type[Response]:
    """Import and return the response class of an API. KeyError if it is not in `MESSAGE_KEYS`."""
    response: type[Response] = _message_class(api_key, "Response")
    return response


def _message_class(api_key: int, suffix: str) -> type:
    if api_key not in MESSAGE_KEYS:
        raise KeyError(api_key)
    module = ApiKey(api_key).name.lower()
    name = module.title().replace("_", "") + suffix
    found: type = getattr(import_module(f"kgw.protocol.messages.{module}"), name)
    return found
