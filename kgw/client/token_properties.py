"""Reads the properties of a login with tokens (OAUTHBEARER)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from kgw.client.jaas import module_options
from kgw.client.token_login import (
    ClientCredentials,
    EndpointTokenSource,
    FileTokenSource,
    TokenLogin,
)
from kgw.config.properties import PropertyError
from kgw.config.web_url import parse_web_url
from kgw.security.sasl.oauthbearer import OAUTHBEARER

if TYPE_CHECKING:
    from kgw.client.client_properties import GivenProperties
    from kgw.client.token_login import TokenSource

_JAAS: Final = "sasl.jaas.config"
_URL: Final = "sasl.oauthbearer.token.endpoint.url"
_ID: Final = "sasl.oauthbearer.client.credentials.client.id"
_SECRET: Final = "sasl.oauthbearer.client.credentials.client.secret"  # noqa: S105 - a name
_SCOPE: Final = "sasl.oauthbearer.scope"
_URL_ENCODED: Final = "sasl.oauthbearer.header.urlencode"
_OF_OPTIONS: Final = {"clientId": _ID, "clientSecret": _SECRET, "scope": _SCOPE}
"""The property with the meaning of each option of the login module."""
_EXTENSION: Final = "extension_"
_EXTENSION_NAME = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE = re.compile(r"[\x21-\x7e \t\r\n]+")

_PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer"
_CLASSES: Final = {
    "sasl.login.callback.handler.class": (
        f"{_PACKAGE}.OAuthBearerLoginCallbackHandler",
        f"{_PACKAGE}.secured.OAuthBearerLoginCallbackHandler",
    ),
    "sasl.oauthbearer.jwt.retriever.class": (
        f"{_PACKAGE}.DefaultJwtRetriever",
        f"{_PACKAGE}.ClientCredentialsJwtRetriever",
        f"{_PACKAGE}.FileJwtRetriever",
    ),
    "sasl.oauthbearer.method": ("oidc",),
}
"""The values of properties that choose how a token is found: the URL says it already."""


def token_login(given: GivenProperties) -> TokenLogin:
    """Return the login for the properties. Raises PropertyError."""
    for name in ("sasl.username", "sasl.password"):
        if given.secret(name):
            raise PropertyError(name, "it has no effect with sasl.mechanism=OAUTHBEARER")
    for name, values in _CLASSES.items():
        if given.text(name) and given.text(name) not in values:
            raise PropertyError(name, f"its value is refused, only {' or '.join(values)} is known")
    options, extensions = _options(given)
    text = given.text(_URL)
    if not text:
        raise PropertyError("sasl.mechanism", f"OAUTHBEARER needs {_URL}")
    if text.lower().startswith("file:"):
        for name in (_ID, _SECRET, _SCOPE, _URL_ENCODED):
            if given.secret(name):
                raise PropertyError(name, f"it has no effect, as {_URL} names a file")
        if options:
            raise PropertyError(_JAAS, f"its options have no effect, as {_URL} names a file")
        return TokenLogin(_file(text), extensions)
    return TokenLogin(_endpoint(text, given, options), extensions)


def _options(given: GivenProperties) -> tuple[dict[str, str], tuple[tuple[str, str], ...]]:
    """Return the options of the login module by the name of their property, and the extensions.

    Texts of errors have no part of the property.
    """
    jaas = given.secret(_JAAS)
    if not jaas.strip():
        return {}, ()
    try:
        found = module_options(jaas, OAUTHBEARER)
    except ValueError as error:
        raise PropertyError(_JAAS, str(error)) from None
    options: dict[str, str] = {}
    extensions: list[tuple[str, str]] = []
    for name, value in found.items():
        if name in _OF_OPTIONS:
            options[_OF_OPTIONS[name]] = value
        elif name.startswith(_EXTENSION):
            extension = name.removeprefix(_EXTENSION)
            if extension == "auth" or not _EXTENSION_NAME.fullmatch(extension):
                raise PropertyError(_JAAS, "the name of an extension has other signs than letters")
            if not _EXTENSION_VALUE.fullmatch(value):
                raise PropertyError(_JAAS, "the value of an extension has signs that are refused")
            extensions.append((extension, value))
        elif name.startswith("unsecuredLogin"):
            raise PropertyError(_JAAS, "tokens without a signature are refused (unsecuredLogin...)")
        elif name.startswith("ssl."):
            raise PropertyError(
                _JAAS,
                "options of ssl are refused: the token endpoint's certificate must be one that the "
                "system trusts",
            )
        else:
            raise PropertyError(
                _JAAS,
                "it has an option that is not known: clientId, clientSecret, scope and "
                "extension_NAME are",
            )
    for name in options:
        if given.secret(name):
            raise PropertyError(name, f"{_JAAS} has it already")
    return options, tuple(extensions)


def _file(text: str) -> TokenSource:
    try:
        parts = urlsplit(text)
    except ValueError:
        parts = urlsplit("")
    if parts.netloc not in {"", "localhost"} or not parts.path.startswith("/"):
        raise PropertyError(_URL, "the URL of a file is file:///PATH")
    return FileTokenSource(unquote(parts.path))


def _endpoint(text: str, given: GivenProperties, options: dict[str, str]) -> TokenSource:
    try:
        url = parse_web_url(text)
    except ValueError as error:
        raise PropertyError(_URL, str(error)) from None
    client_id = options.get(_ID) or given.text(_ID)
    secret = options.get(_SECRET) or given.secret(_SECRET)
    for name, value in ((_ID, client_id), (_SECRET, secret)):
        if not value:
            raise PropertyError(_URL, f"a token endpoint needs {name}")
    encoded = given.text(_URL_ENCODED).lower()
    if encoded not in {"", "true", "false"}:
        raise PropertyError(_URL_ENCODED, "it is neither true nor false")
    is_url_encoded = encoded == "true"
    if not is_url_encoded and ":" in client_id:
        # The endpoint would take another part for the secret.
        raise PropertyError(_URL, f"a client id with a colon needs {_URL_ENCODED}=true")
    scope = options.get(_SCOPE) or given.text(_SCOPE)
    return EndpointTokenSource(url, ClientCredentials(client_id, secret, scope, is_url_encoded))
