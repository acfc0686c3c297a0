"""The address of a cluster and the properties of its clients, in a form that tasks get."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from platform import node
from typing import TYPE_CHECKING, Any, Final

from kgw.client.client_properties import ALIASES, OBEYED
from kgw.client.security import check_client_properties, client_security
from kgw.config.properties import PropertyError
from kgw.pipeline.errors import OptionError
from kgw.pipeline.wire import WireClient, parse_bootstrap
from kgw.version import install_command

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kgw.client import ClientSecurity

# Not in a path: no error text has a value except the path of a file.
_NAMES: Final = re.compile(
    rf"(?<![\w./-])({'|'.join(map(re.escape, [*OBEYED, *ALIASES]))})(?![\w./-]*\w)"
)


@dataclass(frozen=True)
class Cluster:
    """A cluster as a driver and its tasks connect to it.

    It can be pickled. Each process reads the files that the properties name from its own machine.
    """

    bootstrap: str
    """`host:port,host:port`."""
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Properties of Kafka's clients: TLS and the login. Some of them are secret."""
    prefix: str = ""
    """The text before the names of properties in error texts."""

    def check(self) -> None:
        """Raise OptionError for an address or a property that no machine can use."""
        parse_bootstrap(self.bootstrap)
        try:
            check_client_properties(self.properties)
        except PropertyError as error:
            raise OptionError(self._told(error)) from None

    def client(self, **options: Any) -> WireClient:
        """Return a new client; `options` are those of WireClient.

        Raises OptionError, which names the machine, for a file that cannot be used there.
        """
        return WireClient(self.bootstrap, security=self._security(), **options)

    def _security(self) -> ClientSecurity | None:
        if not self.properties:
            return None
        try:
            return client_security(self.properties)
        except PropertyError as error:
            raise OptionError(f"{self._told(error)} (on {node()})") from None
        except ModuleNotFoundError as error:
            needs = f"a PKCS12 file needs the package {error.name} (on {node()})"
            raise OptionError(f"{needs}: {install_command('tls')}") from None

    def _told(self, error: PropertyError) -> str:
        return _NAMES.sub(lambda found: f"{self.prefix}{found[1]}", str(error))
