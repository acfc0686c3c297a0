"""`kgw doctor --config FILE --data-dir DIR`: reads the files of a server, which is not asked."""

from __future__ import annotations

import asyncio
import hmac
import os
import re
from pathlib import Path
from stat import S_IROTH
from typing import TYPE_CHECKING

from kgw.backend.embedded.offline.opening import opened_state
from kgw.cli.doctor.connecting import ServedCertificate
from kgw.cli.doctor.findings import print_findings
from kgw.cli.doctor.setup_rules import (
    ServedListener,
    ServerSetup,
    StoredLogin,
    login_finding,
    setup_findings,
)
from kgw.cli.shared.command_config import given_security
from kgw.clock import SystemClock
from kgw.config import SERVER_SETTINGS
from kgw.errors import DataDirectoryError, StorageError
from kgw.security.acls.binding import decode
from kgw.security.sasl.scram import (
    ScramCredential,
    ScramMechanism,
    credential_of_salted,
    decode_credential,
    salt_password,
)
from kgw.security.tls.errors import TlsSettingError
from kgw.security.tls.keystores import read_key_material
from kgw.security.tls.reload import CertificateFiles, load_problem
from kgw.server.listener_security import tls_options
from kgw.state.base import DamagedRowsError
from kgw.state.kinds import ACCESS_RULE, SCRAM_CREDENTIAL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kgw.backend.seaweedmq.offline.findings import CheckResult
    from kgw.cli.shared.command_config import GivenFile
    from kgw.cli.shared.errors import ExitCode
    from kgw.client import ClientLogin
    from kgw.config import Config
    from kgw.state.base import StateStore

_OUTSIDE_OF_FILES = "the server keeps them outside of this data directory"
Stored = dict[str, dict[str, ScramCredential]]
"""The credentials of each user, by mechanism."""


def examine_setup(
    config: Config, config_file: str | None, file: GivenFile | None, *, is_json: bool
) -> ExitCode:
    """Print the findings about the settings and files of a server, and return the exit code."""
    return print_findings(find_in_setup(config, config_file, file), is_json=is_json)


def find_in_setup(
    config: Config, config_file: str | None, file: GivenFile | None = None
) -> list[CheckResult]:
    """Return the findings about the settings and files of a server."""
    setup = _read_settings(config, config_file, SystemClock().wall_ms() / 1000)
    stored: Stored | None = None
    if config.backend != "embedded":
        setup = setup._replace(users_unknown=_OUTSIDE_OF_FILES)
    elif setup.has_login or setup.has_rules:
        try:
            stored, principals = asyncio.run(_read_state(config.data_dir))
        except (DataDirectoryError, StorageError, ValueError) as error:
            setup = setup._replace(users_unknown=str(error))
        else:
            users = {user: frozenset(by_mechanism) for user, by_mechanism in stored.items()}
            setup = setup._replace(users=users, rule_principals=principals)
    findings = setup_findings(setup)
    security = given_security()
    login = None if security is None else security.password_login
    if login is not None and stored is not None:
        findings.append(login_finding(_stored_login(login, stored, file)))
    return findings


def _read_settings(config: Config, config_file: str | None, now_s: float) -> ServerSetup:
    """Read the settings, and the files that they name."""
    protocols = config.protocols
    setup = ServerSetup(
        tuple(
            ServedListener(one, protocols[one.name], config.advertised.get(one.name))
            for one in config.bound_listeners
        ),
        now_s,
        config.data_dir,
        _places(config, config_file),
        config.sasl_enabled_mechanisms,
        config.ssl_client_auth,
        config.super_users,
        bool(config.super_users or config.authorizer_class_name),
        open_files=tuple(_open_files(config, config_file)),
    )
    if not setup.has_tls:
        return setup
    options = tls_options(config)
    try:
        files = CertificateFiles(options, now_s)
        material = read_key_material(options)
        certificate = ServedCertificate.of(material.chain[0])
    except (TlsSettingError, OSError) as error:
        return setup._replace(tls_problem=load_problem(error).removesuffix("."))
    # The dates of the server's own certificate are findings of their own.
    own = f"the certificate {certificate.subject} "
    warnings = tuple(one.removesuffix(".") for one in files.first.warnings if own not in one)
    return setup._replace(certificate=certificate, file_warnings=warnings)


async def _read_state(data_dir: str) -> tuple[Stored, frozenset[str]]:
    """Return the stored credentials, and the principals of the access rules.

    Raises DataDirectoryError, also while a server has the directory open, StorageError, ValueError.
    """
    async with opened_state(data_dir) as state:
        stored: Stored = {}
        for key, value in (await _rows(state, SCRAM_CREDENTIAL)).items():
            mechanism, _, user = key.partition("/")
            stored.setdefault(user, {})[mechanism] = decode_credential(value)
        rules = await _rows(state, ACCESS_RULE)
        return stored, frozenset(decode(value).principal for value in rules.values())


async def _rows(state: StateStore, kind: str) -> dict[str, bytes]:
    try:
        return {key: row.value for key, row in (await state.load(kind)).items()}
    except DamagedRowsError as error:
        raise StorageError(str(error)) from error


def _stored_login(login: ClientLogin, stored: Stored, file: GivenFile | None) -> StoredLogin:
    found = stored.get(login.user, {})
    name = "sasl.jaas.config"
    if file is not None and not file.line_of(name):
        name = "sasl.username"
    place = "" if file is None else f" ({file.path}{file.line_of(name)})"
    of_mechanism = found.get(login.mechanism)
    candidates = [*found.items()] if of_mechanism is None else [(login.mechanism, of_mechanism)]
    is_right = any(_fits(one, login.password, mechanism) for mechanism, one in candidates)
    return StoredLogin(login.user, login.mechanism, place, frozenset(found), is_right)


def _fits(stored: ScramCredential, password: str, mechanism: str) -> bool:
    """Return whether a credential was made of a password."""
    scram = ScramMechanism.named(mechanism)
    salted = salt_password(scram, password, stored.salt, stored.iterations)
    made = credential_of_salted(scram, salted, stored.salt, stored.iterations)
    return hmac.compare_digest(made.stored_key, stored.stored_key)


def _places(config: Config, config_file: str | None) -> Mapping[str, str]:
    """Return the origin of each given setting: " (FILE:LINE)", a variable or an option."""
    text = ""
    if config_file is not None:
        text = Path(config_file).read_text(encoding="utf-8")
    places: dict[str, str] = {}
    for name in SERVER_SETTINGS:
        if not config.is_given(name):
            continue
        origin = config.origin(name)
        if origin == f"file {config_file}":
            origin = f"{config_file}{_line_of(name, text)}"
        places[name] = f" ({origin})"
    return places


def _line_of(name: str, toml: str) -> str:
    """Return ":LINE" of a setting that is written with its full name; "" in a table of TOML."""
    pattern = re.compile(rf"""\s*["']?{re.escape(name)}["']?\s*=""")
    for number, line in enumerate(toml.splitlines(), 1):
        if pattern.match(line):
            return f":{number}"
    return ""


def _open_files(config: Config, config_file: str | None) -> list[str]:
    """Return the files with secrets that every user of this machine can read."""
    files: list[str] = []
    if config_file is not None and any(
        setting.is_sensitive and config.origin(name) == f"file {config_file}"
        for name, setting in SERVER_SETTINGS.items()
    ):
        files.append(config_file)
    return [one for one in files if _mode(one) & S_IROTH]


def _mode(path: str) -> int:
    try:
        return os.stat(path).st_mode  # noqa: PTH116 - a path is a string here
    except OSError:
        return 0
