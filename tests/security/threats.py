"""The threats to kgw: the rule that meets each, where it is decided, and the tests that prove it.

scripts/docs.py prints this table as docs/reference/threats.md, and `test_threats.py` looks whether
each module and each test is there. Whoever adds a protection adds a row.
"""

from __future__ import annotations

import ast
from enum import Enum
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Boundary(Enum):
    """Between whom and whom a threat crosses, in the words of docs/security-model.md."""

    BEFORE_LOGIN = "A network client, before its login"
    LOGGED_IN = "A logged-in client"
    ADMINISTRATION = "Super users and operators"
    ADMIN_SIDE = "The admin side"
    STORAGE = "The storage"
    PIPELINE = "The pipeline and kgw's own clients"
    SUPPLY = "Where the code comes from"


class Threat(NamedTuple):
    """One row."""

    boundary: Boundary
    threat: str
    rule: str
    modules: tuple[str, ...]
    proofs: tuple[str, ...]
    """Tests as pytest names them; a whole file where all of it is about the threat."""
    campaign: str = ""
    """The campaign that it belongs to, as A5 or P3."""


_OUT, _IN = Boundary.BEFORE_LOGIN, Boundary.LOGGED_IN
_BY, _ADMIN = Boundary.ADMINISTRATION, Boundary.ADMIN_SIDE
_SASL, _TLS, _ACLS = "tests/security/sasl", "tests/security/tls", "tests/security/acls"
_ACCESS = "tests/handlers/test_access"
_CONFIG_FILE = "tests/cli/test_command_config.py"
_LIMITS = "tests/server/test_login_limits.py::"
_HOSTILE = "tests/hostile/test_hostile.py::"

THREATS: tuple[Threat, ...] = (
    # --- before the login -------------------------------------------------------------------------
    Threat(
        _OUT,
        "A client without a login uses an API",
        "ApiVersions, SaslHandshake and SaslAuthenticate are all that is answered",
        ("kgw/handlers/login.py", "kgw/security/sasl/session_rules.py"),
        (
            "tests/handlers/test_login.py::TestBeforeTheLogin::test_every_request",
            "tests/handlers/test_login.py::TestBeforeTheLogin::test_keys_that_do_not_exist",
            "tests/handlers/test_login.py::TestBeforeTheLogin::test_requests_while_a_password_is_hashed",
            "tests/security/test_login_threads.py::test_too_many_logins_at_once_are_refused",
        ),
        "A5",
    ),
    Threat(
        _OUT,
        "A login is altered, cut or repeated until it is accepted",
        "The whole nonce, the proof, the header and the name are compared; an exchange ends once",
        ("kgw/security/sasl/scram.py", "kgw/security/sasl/scram_messages.py"),
        (
            f"{_SASL}/test_scram_altered.py",
            f"{_SASL}/test_scram_exchange.py::test_a_recorded_login_cannot_be_repeated",
            f"{_SASL}/test_scram_exchange.py::test_messages_have_one_order",
        ),
        "A1",
    ),
    Threat(
        _OUT,
        "PLAIN's message says it is somebody else, or is no message",
        "One message of three fields; an authorization id is the user or empty",
        ("kgw/security/sasl/plain.py",),
        (
            f"{_SASL}/test_plain.py::test_another_message_is_refused",
            f"{_SASL}/test_exchange.py::test_plain_takes_one_message",
        ),
        "A2",
    ),
    Threat(
        _OUT,
        "A client finds out which users exist",
        "An unknown user has a stable false salt; words and work are those of a wrong password",
        ("kgw/security/sasl/scram.py", "kgw/security/credentials.py"),
        (
            f"{_SASL}/test_scram_exchange.py::test_an_unknown_user_gets_the_answers_of_a_wrong_password",
            f"{_SASL}/test_scram_exchange.py::test_a_user_has_the_same_challenge_each_time",
            f"{_SASL}/test_exchange.py::test_plain_costs_the_same_for_each_user",
            f"{_SASL}/test_login_times.py::test_unknown_users_take_as_long",
        ),
        "A1, A2",
    ),
    Threat(
        _OUT,
        "A password is read on the way",
        "PLAIN is offered over TLS alone, unless a setting says otherwise in words",
        ("kgw/config/config.py", "kgw/security/sasl/exchange.py"),
        (
            f"{_SASL}/test_exchange.py::test_plain_is_offered_over_tls",
            "tests/app/test_security.py::test_refused_configurations",
        ),
        "A2",
    ),
    Threat(
        _OUT,
        "Old versions of TLS, or a certificate that is wrong, are accepted",
        "TLS 1.2 at least; authority, dates and purpose of a client's certificate are verified",
        ("kgw/security/tls/contexts.py",),
        (
            f"{_TLS}/test_handshakes.py::test_tls_1_1_is_refused",
            f"{_TLS}/test_handshakes.py::test_required_refuses_a_client_without_a_certificate",
            f"{_TLS}/test_handshakes.py::test_a_certificate_of_another_authority_is_refused",
            f"{_TLS}/test_handshakes.py::test_a_certificate_outside_its_dates_is_refused",
            f"{_TLS}/test_handshakes.py::test_a_servers_certificate_is_no_clients",
        ),
        "A9",
    ),
    Threat(
        _OUT,
        "A resumed session passes by a certificate that is trusted no more",
        "No tickets; every connection is verified with the present files",
        ("kgw/security/tls/reload.py", "kgw/security/tls/contexts.py"),
        (
            f"{_TLS}/test_reload.py::test_a_resumed_session_is_verified_with_the_new_truststore",
            f"{_TLS}/test_handshakes.py::test_a_session_has_no_ticket",
        ),
        "A9",
    ),
    Threat(
        _OUT,
        "A name in a certificate becomes another user, or takes long to map",
        "The first rule that matches a whole name counts; matching takes linear time",
        ("kgw/security/tls/principals.py", "kgw/security/tls/java_patterns.py"),
        (
            f"{_TLS}/test_principals.py::test_the_first_match_wins",
            f"{_TLS}/test_principals.py::test_a_partial_match_is_none",
            f"{_TLS}/test_principals.py::test_a_pattern_takes_linear_time",
            f"{_TLS}/test_principals.py::test_no_client_has_a_reserved_name",
        ),
        "A8",
    ),
    Threat(
        _OUT,
        "Claimed lengths and counts take memory",
        "A small frame before the login; memory grows with the bytes that arrive",
        ("kgw/protocol/framing.py", "kgw/protocol/decoding.py", "kgw/server/memory.py"),
        (
            f"{_LIMITS}TestFrames::test_the_size_before_the_login",
            f"{_HOSTILE}test_allocation_bombs",
            f"{_HOSTILE}test_mutations",
        ),
        "P2, P3",
    ),
    Threat(
        _OUT,
        "Connections are held without being used: half a handshake, half a login, half a frame",
        "They count from their accept on, and each of these has a deadline",
        ("kgw/server/handshakes.py", "kgw/server/connection.py"),
        (
            "tests/server/test_listener_security.py::TestLimitsOfHandshakes::test_beyond_a_limit",
            "tests/server/test_listener_security.py::TestTls::test_who_never_ends_the_handshake",
            f"{_LIMITS}TestDeadline::test_no_login_in_time",
            f"{_LIMITS}TestDeadline::test_a_login_that_has_only_begun",
            f"{_HOSTILE}test_slow_clients",
            f"{_HOSTILE}test_floods",
        ),
        "P6, P7",
    ),
    Threat(
        _OUT,
        "HTTP, TLS and noise disturb others, or fill the log",
        "Their connection is closed; each kind of them is told once in ten seconds",
        ("kgw/security/tls/peeking.py", "kgw/server/server.py"),
        (
            f"{_HOSTILE}test_garbage",
            "tests/server/test_server.py::test_a_client_of_another_protocol_is_told_once",
            "tests/server/test_listener_security.py::TestTls::test_who_speaks_plain_text",
        ),
        "P1",
    ),
    Threat(
        _OUT,
        "A listener is open because of a slip of the keys",
        "A name that looks like a protocol, and is none, is refused",
        ("kgw/config/listeners.py",),
        ("tests/app/test_security.py::test_refused_configurations",),
    ),
    Threat(
        _OUT,
        "A token is forged, altered, expired, or was made for another server",
        "Signature, issuer, audience and times are checked; a start without the rules is refused",
        (
            "kgw/security/oauth/claims.py",
            "kgw/security/oauth/signed_tokens.py",
            "kgw/config/config.py",
        ),
        (
            "tests/security/oauth/test_bad_tokens.py",
            "tests/security/sasl/test_oauthbearer.py",
            "tests/security/sasl/test_oauthbearer_libraries.py",
            "tests/config/test_token_settings.py::test_an_unsafe_set_up_is_refused",
        ),
        "A3",
    ),
    Threat(
        _OUT,
        "The key set comes from somebody else, or a fetch takes memory or time without end",
        "A URL with https, by the operator; no redirect, five seconds, 512 KB; old keys stay",
        (
            "kgw/security/oauth/http.py",
            "kgw/security/oauth/trust.py",
        ),
        (
            "tests/security/oauth/test_http.py",
            "tests/security/oauth/test_trust.py",
            "tests/security/oauth/test_key_set.py",
            "tests/security/oauth/test_refresh_rule.py",
        ),
        "A3",
    ),
    Threat(
        _OUT,
        "Passwords are tried one after the other",
        "Failed logins of a network and of a name in it are limited, and answered late",
        (
            "kgw/security/sasl/failed_logins.py",
            "kgw/handlers/login_attempts.py",
        ),
        (
            "tests/security/sasl/test_failed_logins.py",
            "tests/handlers/test_login_attempts.py",
        ),
    ),
    Threat(
        _OUT,
        "A listener serves everybody on a network, and nobody has said so",
        "Beyond loopback it needs a login, certificates, access rules, or a decision in words",
        ("kgw/config/config.py",),
        (
            "tests/config/test_listeners.py::test_a_listener_without_a_login_needs_a_word",
            "tests/config/test_listeners.py::test_tls_alone_asks_nobody",
        ),
    ),
    # --- logged-in clients ------------------------------------------------------------------------
    Threat(
        _IN,
        "A client does what no rule allows",
        "Denied unless a rule allows it, also without any rule; a rule that denies wins",
        ("kgw/security/acls/decision.py", "kgw/security/acls/authorizer.py"),
        (
            f"{_ACLS}/test_authorizer.py::test_without_rules_everything_is_denied",
            f"{_ACLS}/test_authorizer.py::test_a_rule_that_denies_wins",
            f"{_ACLS}/test_oracle_cases.py",
            "tests/security/oracle/test_oracle.py::test_stored_verdicts",
        ),
        "A6",
    ),
    Threat(
        _IN,
        "An API is reached around the question for rights",
        "Each API declares its rights, and asks for each part of a request",
        ("kgw/handlers/rights.py", "kgw/handlers/parts.py"),
        (
            f"{_ACCESS}.py::test_every_api_declares_its_rights",
            f"{_ACCESS}.py::test_an_api_that_declares_nothing_is_refused",
            f"{_ACCESS}.py::test_a_missing_right_is_refused",
            f"{_ACCESS}_cases.py::test_requests_are_refused_as_the_oracle_says",
        ),
        "A6",
    ),
    Threat(
        _IN,
        "A client learns the name of a topic or a group that it may not see",
        "The answer is the same whether it exists or not",
        ("kgw/handlers/metadata.py", "kgw/handlers/rights.py"),
        (
            f"{_ACCESS}.py::test_a_name_is_not_revealed",
            f"{_ACCESS}_answers.py::test_metadata_hides_topics",
            f"{_ACCESS}_answers.py::test_the_list_of_topics_has_what_a_client_may_see",
        ),
        "A6",
    ),
    Threat(
        _IN,
        "A right that was taken away goes on in a session, a poll or a wait",
        "A change ends all waits, and each partition is asked for again",
        ("kgw/security/access.py", "kgw/handlers/fetch.py"),
        (
            f"{_ACCESS}_waits.py::test_a_waiting_fetch_is_refused_at_once",
            f"{_ACCESS}_waits.py::test_a_session_that_waits_is_refused_at_once",
            f"{_ACCESS}_waits.py::test_a_kept_poll_is_refused",
            f"{_ACCESS}_waits.py::test_a_deny_rule_ends_waits",
        ),
        "A6",
    ),
    Threat(
        _IN,
        "A client uses the fetch session of another one",
        "A session belongs to the principal that opened it",
        ("kgw/handlers/fetch.py",),
        (f"{_ACCESS}_waits.py::test_a_session_is_not_another_clients",),
    ),
    Threat(
        _IN,
        "A login is used after its end, or becomes somebody else's",
        "The next request after the end closes; mechanism and principal stay (KIP-368)",
        ("kgw/security/sasl/session_rules.py",),
        (
            f"{_SASL}/test_session_rules.py::test_a_request_after_the_end_closes",
            f"{_SASL}/test_session_rules.py::test_a_new_login_keeps_the_mechanism",
            f"{_SASL}/test_session_rules.py::test_a_new_login_keeps_the_principal",
            "tests/handlers/test_login.py::TestReauthentication::test_sessions",
        ),
        "A4",
    ),
    Threat(
        _IN,
        "A client pretends to be a broker",
        "A replica id has no effect; markers and the like need CLUSTER_ACTION",
        ("kgw/handlers/fetch.py", "kgw/handlers/write_txn_markers.py"),
        (
            "tests/hostile/test_rules.py::test_forged_replica_id",
            "tests/handlers/test_forged_internals.py",
            f"{_ACCESS}_answers.py::test_a_replica_needs_the_cluster",
        ),
        "A7",
    ),
    Threat(
        _IN,
        "A name becomes a path, or a line of the log",
        "Names are checked before they are used, and are no paths; control characters are escaped",
        ("kgw/partitions/topics/topic.py", "kgw/logs.py"),
        (
            "tests/hostile/test_rules.py::test_names_reach_neither_paths_nor_log_lines",
            "tests/hostile/test_names.py::test_names",
            "tests/hostile/test_names.py::test_every_name_in_every_place_of_a_line",
            "tests/hostile/test_names.py::test_no_rule_goes_back",
            "tests/hostile/test_names.py::test_mapping_takes_no_time",
        ),
        "A8",
    ),
    Threat(
        _IN,
        "A compressed batch is far larger than it looks",
        "Sizes are looked at first; decompression stops at a limit, beside the event loop",
        ("kgw/records",),
        ("tests/hostile/test_decompression_bombs.py::test_bombs_are_refused",),
        "P4",
    ),
    Threat(
        _IN,
        "A damaged or lying batch is stored",
        "Checksum and header are checked before an append; a bad one is refused",
        ("kgw/records",),
        (
            "tests/hostile/test_bad_batches.py::test_no_flipped_bit_is_stored",
            "tests/hostile/test_bad_batches.py::test_no_lie_is_stored",
        ),
        "P5",
    ),
    Threat(
        _IN,
        "A client sends without reading, or reads nothing, until memory is full",
        "Requests in flight and unsent answers are bounded for each connection, also over TLS",
        ("kgw/server/connection.py", "kgw/server/sending.py"),
        (
            f"{_HOSTILE}test_pipelining",
            "tests/server/test_encrypted_sending.py::TestAClientThatTakesNothing::test_many",
            "tests/server/test_encrypted_sending.py::TestAClientThatTakesNothing::test_it_is_dropped",
        ),
        "P6, P8",
    ),
    Threat(
        _IN,
        "A request without what it must have ends the server",
        "Empty and absent collections of each API are answered, or close one connection",
        ("kgw/protocol/codec.py", "kgw/handlers"),
        (
            "tests/hostile/test_rules.py::test_empty_and_absent_collections",
            "tests/hostile/test_rules.py::test_broken_request_closes_its_own_connection",
        ),
        "P2",
    ),
    Threat(
        _IN,
        "A delegation token is used after its end, or makes itself live for ever",
        "It is refused from its expiry on; a client that used a token gets and renews none",
        (
            "kgw/security/delegation_tokens.py",
            "kgw/security/sasl/tokens.py",
        ),
        (
            "tests/handlers/test_delegation_tokens.py",
            "tests/security/test_delegation_tokens.py",
        ),
    ),
    # --- super users and operators ----------------------------------------------------------------
    Threat(
        _BY,
        "Somebody who is named like a super user is one",
        "A super user is an exact principal, by type and name; nobody can be called `*`",
        ("kgw/security/acls/authorizer.py", "kgw/security/credentials.py"),
        (
            f"{_ACLS}/test_authorizer.py::test_a_super_user_is_an_exact_principal",
            f"{_ACLS}/test_authorizer.py::test_every_principal_as_super_user_is_that_principal_alone",
            f"{_ACCESS}_answers.py::test_a_super_user_is_one_by_type_and_name",
        ),
    ),
    Threat(
        _BY,
        "A rule that denies is lost",
        "A rule that cannot be read stops the start; one that is removed leaves the others",
        ("kgw/security/access.py", "kgw/security/acls/binding.py"),
        (
            "tests/security/test_access.py::test_a_damaged_rule_ends_the_start",
            "tests/security/test_access.py::test_rules_outlive_the_process",
            f"{_ACLS}/test_authorizer.py::test_one_of_many_rules_is_removed",
            f"{_ACLS}/test_authorizer_properties.py::test_after_a_removal_the_other_rules_stay",
        ),
        "A6",
    ),
    Threat(
        _BY,
        "A change of rules or users is answered, and lost by a crash",
        "It is durable before it is in force and before it is answered",
        ("kgw/security/access.py", "kgw/handlers/alter_user_scram_credentials.py"),
        (
            "tests/security/test_access.py::test_a_change_is_durable_before_it_is_in_force",
            "tests/handlers/test_scram_credentials.py::TestDurable::test_not_answered_before_it_is_stored",
            "tests/handlers/test_acls.py::test_rules_are_there_after_a_restart",
        ),
    ),
    Threat(
        _BY,
        "Rules are changed by somebody who may not",
        "ALTER and DESCRIBE of the cluster are asked for",
        ("kgw/handlers/create_acls.py", "kgw/handlers/delete_acls.py"),
        ("tests/handlers/test_acls.py::test_who_may_change_rules",),
        "A6",
    ),
    Threat(
        _BY,
        "Passwords and keys stand in an answer, an error or a log",
        "Values of passwords are never told; errors of files and logins have no bytes of them",
        ("kgw/config/setting.py", "kgw/security/tls/errors.py", "kgw/security/sasl/errors.py"),
        (
            "tests/handlers/test_scram_credentials.py::test_no_answer_has_a_secret",
            f"{_SASL}/test_scram_exchange.py::test_an_error_holds_no_bytes_of_the_client",
            f"{_SASL}/test_plain.py::test_a_parsed_message_does_not_show_its_password",
            f"{_TLS}/test_bad_settings.py::test_nothing_shows_a_secret",
            "tests/hostile/test_secrets.py::test_no_secret_is_told",
        ),
        "A11",
    ),
    Threat(
        _BY,
        "Other users of the machine read the key, or a copy of it",
        "A key is never in a named file; a mode that opens it to others is told at each load",
        ("kgw/security/tls/contexts.py", "kgw/security/tls/keystores.py"),
        (
            f"{_TLS}/test_bad_settings.py::test_the_key_is_never_in_a_named_file",
            f"{_TLS}/test_reload.py::test_a_key_file_that_others_can_read",
            f"{_TLS}/test_reload.py::test_a_file_of_root_may_be_read_by_its_group",
            "tests/app/test_files.py::test_modes",
            "tests/app/test_files.py::test_no_link_is_followed",
        ),
        "A12",
    ),
    Threat(
        _BY,
        "A changed certificate ends sessions, or a broken one opens a listener",
        "New connections get the new one; files that cannot be used leave the old one",
        ("kgw/security/tls/reload.py", "kgw/server/listener_security.py"),
        (
            "tests/server/test_listener_security.py::TestChangedCertificates::test_under_load",
            "tests/hostile/test_certificates_under_load.py::test_no_request_fails",
            "tests/server/test_listener_security.py::TestChangedCertificates::test_a_broken_file",
            "tests/app/test_security.py::test_certificates_are_read_again",
        ),
        "A9",
    ),
    Threat(
        _BY,
        "Nobody notices who was denied what",
        "The audit log has each denial, sampled; logins and denials are counted",
        ("kgw/security/audit.py", "kgw/handlers/login.py"),
        (
            "tests/security/test_access.py::test_denials_are_counted_and_logged",
            "tests/security/test_access.py::test_one_client_does_not_fill_the_log",
            "tests/handlers/test_login.py::TestFailedLogins::test_the_log",
        ),
    ),
    Threat(
        _BY,
        "A mistake in the set-up opens or closes too much, and nobody sees it",
        "`kgw doctor` names the line to change, at a server and over its files",
        ("kgw/cli/doctor/connecting.py", "kgw/cli/doctor/setup_rules.py"),
        (
            "tests/cli/test_doctor_connecting.py",
            "tests/cli/test_doctor_setup_rules.py",
            "tests/cli/test_doctor_security.py",
            "tests/docs/test_commands.py::test_from_open_to_closed",
        ),
    ),
    # --- the admin side ---------------------------------------------------------------------------
    Threat(
        _ADMIN,
        "The admin side is asked without its token, or by another way to say a path",
        "Every path is asked in one place; only the status of health needs no token",
        ("kgw/admin/serving.py", "kgw/admin/token.py"),
        (
            "tests/admin/test_token.py::TestRequests::test_every_path",
            "tests/admin/test_token.py::TestRequests::test_other_ways_to_say_a_path",
            "tests/admin/test_token.py::TestRequests::test_other_tokens",
        ),
        "A10",
    ),
    Threat(
        _ADMIN,
        "A web page in a browser asks the admin side of its user",
        "A foreign Host is refused, and so is every method that changes",
        ("kgw/admin/serving.py",),
        (
            "tests/admin/test_token.py::TestRequests::test_hosts",
            "tests/admin/test_token.py::TestRequests::test_methods",
        ),
        "A10",
    ),
    Threat(
        _ADMIN,
        "Its token can be read by every user of the machine",
        "Such a file is refused",
        ("kgw/admin/token.py",),
        ("tests/admin/test_token.py::TestFiles::test_what_is_refused",),
        "A12",
    ),
    Threat(
        _ADMIN,
        "A user of the admin side does what no rule allows",
        "Each path declares its rights, and a path without them cannot be defined",
        (
            "kgw/admin/rights.py",
            "kgw/admin/serving.py",
        ),
        ("tests/admin/test_rights.py",),
        "A10",
    ),
    Threat(
        _ADMIN,
        "Passwords of users are tried over HTTP, or read on the way",
        "They count with the failed logins of SASL; beyond loopback they need https",
        (
            "kgw/server/password_logins.py",
            "kgw/config/config.py",
        ),
        (
            "tests/admin/test_logins.py",
            "tests/admin/test_https.py",
            "tests/security/sasl/test_basic.py",
            "tests/security/test_proved_passwords.py",
        ),
        "A10",
    ),
    Threat(
        _ADMIN,
        "A client of SeaweedMQ's agent goes around the access rules",
        "With rules its listener needs logins or certificates, and each call asks for its rights",
        ("kgw/agent/clients.py",),
        (
            "tests/agent/test_security.py",
            "tests/security/tls/test_plain_keys.py",
        ),
    ),
    # --- storage, pipeline, supply ----------------------------------------------------------------
    Threat(
        Boundary.STORAGE,
        "A damaged user or rule lets somebody in",
        "A damaged user cannot log in; a damaged rule stops the start",
        ("kgw/security/credentials.py", "kgw/security/access.py"),
        (
            "tests/security/test_credentials.py::test_damaged_rows",
            f"{_SASL}/test_scram_credentials.py::test_a_damaged_credential_is_refused",
            "tests/security/test_access.py::test_a_damaged_rule_ends_the_start",
        ),
    ),
    Threat(
        Boundary.PIPELINE,
        "A server that is not the right one gets the password, or makes a client hash for ever",
        "The certificate is checked before a login; the server has to prove itself; iterations "
        "have a limit",
        ("kgw/client/tls.py", "kgw/client/scram.py"),
        (
            "tests/client/test_secure_connection.py",
            "tests/client/test_scram.py",
        ),
        "A1",
    ),
    Threat(
        Boundary.PIPELINE,
        "A password stands in the list of processes, or in an error",
        "Passwords come from files, variables and terminals; no error shows a value",
        ("kgw/cli/shared/command_config.py", "kgw/cli/users/passwords.py"),
        (
            f"{_CONFIG_FILE}::test_a_refused_login_fails_with_kafkas_error",
            f"{_CONFIG_FILE}::test_an_error_names_the_file_and_the_line",
            f"{_CONFIG_FILE}::test_a_password_that_everybody_can_read_is_warned_of",
            f"{_CONFIG_FILE}::test_every_command_that_connects_can_log_in",
            "tests/cli/test_users.py::test_the_server_is_sent_a_salted_password",
            "tests/cli/test_users.py::test_what_is_no_password_is_refused",
            "tests/cli/test_users.py::test_a_password_is_asked_for_only_at_a_terminal",
        ),
        "A11",
    ),
    Threat(
        Boundary.SUPPLY,
        "A dependency is another one than was looked at, or has a known vulnerability",
        "Pinned with hashes, audited, listed in an SBOM with every installed package",
        ("scripts/sbom.py", "tests/packages/audit.py"),
        (
            "tests/packages/test_sbom.py",
            "tests/packages/test_audit.py",
        ),
        "A14",
    ),
    Threat(
        Boundary.SUPPLY,
        "The code does what is known to be dangerous: shells, pickles, weak hashes, open modes",
        "ruff's rules S find nothing; each exemption has its reason",
        ("pyproject.toml",),
        ("tests/packages/test_security_lint.py",),
        "A14",
    ),
)


def missing_modules(threats: tuple[Threat, ...] = THREATS) -> list[str]:
    """Return the modules of the table that do not exist."""
    return sorted({one for row in threats for one in row.modules if not (ROOT / one).exists()})


def missing_proofs(threats: tuple[Threat, ...] = THREATS) -> list[str]:
    """Return the tests of the table that do not exist."""
    known: dict[str, set[str]] = {}
    missing = []
    for proof in (one for row in threats for one in row.proofs):
        file, _, name = proof.partition("::")
        if file not in known:
            path = ROOT / file
            known[file] = names_of_tests(path) if path.is_file() else set()
        if not known[file] or (name and name not in known[file]):
            missing.append(proof)
    return missing


def names_of_tests(file: Path) -> set[str]:
    """Return the names of a file's tests as pytest writes them behind the file's name."""
    found = set()
    for one in ast.parse(file.read_bytes()).body:
        if isinstance(one, _FUNCTIONS):
            found.add(one.name)
        elif isinstance(one, ast.ClassDef):
            found |= {
                f"{one.name}::{inner.name}" for inner in one.body if isinstance(inner, _FUNCTIONS)
            }
    return {one for one in found if one.rpartition("::")[2].startswith("test_")}
