"""Who is answered where a token is needed, and which files hold one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from kgw.admin.endpoints import ALL_ENDPOINTS
from kgw.admin.token import MAX_CHARACTERS, TokenFile, given_token, read_token
from kgw.config import ConfigError
from kgw.testing.gateway import InProcessGateway
from tests.admin.asking import Admin

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

TOKEN = "correct-horse-battery"
BEARER = (f"Bearer {TOKEN}",)
OPEN_PATHS = {"/health/live": {"live": True}, "/health/ready": {"ready": True}}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file that holds the token and that its owner alone may read."""
    return write(tmp_path / "token", TOKEN.encode() + b"\n")


def write(path: Path, content: bytes, mode: int = 0o600) -> Path:
    """Put a file in the place of what was there, as tools that change secrets do."""
    new = path.with_suffix(".new")
    new.write_bytes(content)
    new.chmod(mode)
    new.replace(path)
    return path


@pytest.fixture
async def gateway() -> AsyncIterator[InProcessGateway]:
    """A gateway without topics."""
    async with InProcessGateway() as running:
        yield running


@pytest.fixture
def admin(gateway: InProcessGateway, file: Path) -> Admin:
    """The application over that gateway, which wants the token of the file."""
    return Admin(gateway.gateway, TokenFile(str(file)))


class TestFiles:
    @pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
    @pytest.mark.parametrize("mode", [0o400, 0o600, 0o440])
    def test_tokens(self, tmp_path: Path, end: bytes, mode: int) -> None:
        """The line's end is no part of it; the owner's group may read it."""
        path = write(tmp_path / "token", TOKEN.encode() + end, mode)
        assert TOKEN.encode() == read_token(str(path))

    @pytest.mark.parametrize(
        ("content", "mode", "said"),
        [
            (TOKEN.encode(), 0o604, "open to every user .mode 604."),
            (TOKEN.encode(), 0o602, "open to every user"),
            (b"", 0o600, "16 to 4096 characters"),
            (b"fifteen-charact", 0o600, "16 to 4096 characters"),
            (b"x" * (MAX_CHARACTERS + 1), 0o600, "16 to 4096 characters"),
            (b"two lines, one\nafter the other", 0o600, "without blanks"),
            (b"\xc3\xa9" * 10, 0o600, "one line of ASCII"),
            (TOKEN.encode() + b"\n\n", 0o600, "without blanks"),
        ],
    )
    def test_what_is_refused(self, tmp_path: Path, content: bytes, mode: int, said: str) -> None:
        """What everybody may read, or is too short to be a secret, or no header can carry."""
        path = write(tmp_path / "token", content, mode)
        with pytest.raises(ConfigError, match=said) as caught:
            TokenFile(str(path))
        assert TOKEN not in str(caught.value)

    def test_no_file(self, tmp_path: Path) -> None:
        """A missing file, or a directory, is an error of the start that names the path."""
        for path, said in ((tmp_path / "none", "No such file"), (tmp_path, "Is a directory")):
            with pytest.raises(ConfigError, match=f"{path} cannot be read: {said}"):
                TokenFile(str(path))

    def test_changes(self, file: Path) -> None:
        """Another token replaces the first one at once."""
        token = TokenFile(str(file))
        assert TOKEN.encode() == token.token()
        write(file, b"another-token-altogether")
        assert b"another-token-altogether" == token.token()

    def test_spoilt(self, file: Path) -> None:
        """While the file holds no token none is accepted; then it is again."""
        token = TokenFile(str(file))
        for spoil in (lambda: file.chmod(0o644), file.unlink, lambda: write(file, b"short")):
            spoil()
            for _ in range(2):
                with pytest.raises(ConfigError):
                    token.token()
        write(file, TOKEN.encode())
        assert TOKEN.encode() == token.token()

    @pytest.mark.parametrize(
        ("headers", "expected"),
        [
            ([b"Bearer abc"], b"abc"),
            ([b"bearer abc"], b"abc"),
            ([b"BEARER   abc "], b"abc"),
            ([b"Bearer"], b""),
            ([b"Basic abc"], None),
            ([b"abc"], None),
            ([b""], None),
            ([], None),
            ([b"Bearer abc", b"Bearer abc"], None),
        ],
    )
    def test_headers(self, headers: list[bytes], expected: bytes | None) -> None:
        """One header of the scheme Bearer, in any case, and no other."""
        assert expected == given_token(headers)


class TestRequests:
    @pytest.mark.parametrize("path", [one.path for one in ALL_ENDPOINTS])
    async def test_every_path(self, admin: Admin, path: str) -> None:
        """Without the token every path is refused, but for the two that probes ask."""
        answer = await admin.get(path)
        if path in OPEN_PATHS:
            assert (200, OPEN_PATHS[path]) == (answer.status, answer.value)
        else:
            assert 401 == answer.status
            assert 'Bearer realm="kgw"' == answer.headers["www-authenticate"]
        assert 401 != (await admin.get(path, authorizations=BEARER)).status

    async def test_details(self, admin: Admin, gateway: InProcessGateway) -> None:
        """Without the token readiness is a status and nothing that tells of the server."""
        gateway.begin_to_stop()
        answer = await admin.get("/health/ready")
        assert (503, {"ready": False}) == (answer.status, answer.value)
        told = await admin.get("/health/ready", authorizations=BEARER)
        assert ["the process is stopping"] == told.value["problems"]

    @pytest.mark.parametrize(
        "path",
        [
            "//metrics",
            "/metrics/",
            "/metrics/../metrics",
            "/health/live/../../metrics",
            "/health/ready/../../metrics",
            "/%6Detrics",
            "/METRICS",
            "/health/live/",
            "/health//live",
            "/Health/Live",
            "/health/live;/metrics",
            "http://localhost/metrics",
            "http://localhost/health/live",
            "/none",
            "/",
            "",
            "*",
        ],
    )
    async def test_other_ways_to_say_a_path(self, admin: Admin, path: str) -> None:
        """No spelling of a path and no method comes past the token."""
        methods = ["GET", "HEAD", "POST", "OPTIONS", "TRACE", "get"]
        answers = [await admin.get(path, method=method) for method in methods]
        assert [401] * len(methods) == [one.status for one in answers]

    @pytest.mark.parametrize(
        "authorizations",
        [
            ("",),
            (TOKEN,),
            ("Bearer",),
            ("Bearer ",),
            (f"Basic {TOKEN}",),
            (f"Bearer {TOKEN[:-1]}",),
            (f"Bearer {TOKEN}x",),
            (f"Bearer {TOKEN.upper()}",),
            (f"Bearer {TOKEN} {TOKEN}",),
            (f"Bearer {TOKEN}, Bearer {TOKEN}",),
            (f"Bearer: {TOKEN}",),
            (f"Bearer\t{TOKEN}",),
            ("Bearer \xe9" + TOKEN,),
            ("Bearer " + "x" * 8_000,),
            (f"Bearer {TOKEN}", f"Bearer {TOKEN}"),
            ("Basic x", f"Bearer {TOKEN}"),
        ],
    )
    async def test_other_tokens(self, admin: Admin, authorizations: tuple[str, ...]) -> None:
        """What is almost the token, the token twice, or another scheme is refused on every path."""
        for path in ("/metrics", "/health/live"):
            answer = await admin.get(path, authorizations=authorizations)
            assert (401, "close") == (answer.status, answer.headers["connection"])
            assert 'error="invalid_token"' in answer.headers["www-authenticate"]

    async def test_methods(self, admin: Admin) -> None:
        """HEAD is answered where GET is; what changes things is served to nobody."""
        assert 200 == (await admin.get("/metrics", method="HEAD", authorizations=BEARER)).status
        assert 200 == (await admin.get("/health/live", method="HEAD")).status
        assert 405 == (await admin.get("/metrics", method="POST", authorizations=BEARER)).status
        assert 405 == (await admin.get("/health/live", method="POST")).status

    @pytest.mark.parametrize("hosts", [("kgw.example:9644",), ("10.0.0.7",), ()])
    async def test_hosts(self, admin: Admin, hosts: tuple[str, ...]) -> None:
        """With a token the server may be called anything; the name alone reads nothing."""
        assert 200 == (await admin.get("/metrics", hosts=hosts, authorizations=BEARER)).status
        assert 401 == (await admin.get("/metrics", hosts=hosts)).status
        assert {"live": True} == (await admin.get("/health/live", hosts=hosts)).value

    async def test_counted_and_logged(
        self, admin: Admin, gateway: InProcessGateway, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Each refusal is counted, one in ten seconds is logged, and no token ever is."""
        for _ in range(3):
            await admin.get("/metrics", authorizations=("Bearer guessed-by-somebody",))
        assert 3 == gateway.metrics.admin_unauthorized
        assert 1 == len(caplog.records)
        assert "guessed" not in caplog.text
        text = (await admin.get("/metrics", authorizations=BEARER)).body.decode()
        assert "kgw_admin_unauthorized_total 3.0" in text

    async def test_a_file_that_is_spoilt(
        self, admin: Admin, file: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The token of yesterday opens nothing, the log says why, and probes go on."""
        file.chmod(0o644)
        assert 401 == (await admin.get("/metrics", authorizations=BEARER)).status
        assert 200 == (await admin.get("/health/live")).status
        assert "no token is accepted" in caplog.text
        file.chmod(0o600)
        assert 200 == (await admin.get("/metrics", authorizations=BEARER)).status


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
def test_a_link_to_the_file(file: Path, tmp_path: Path) -> None:
    """Kubernetes mounts a secret as a link to a file; what the link leads to counts."""
    link = tmp_path / "link"
    link.symlink_to(file)
    token = TokenFile(str(link))
    other = write(tmp_path / "other", b"another-token-altogether")
    link.unlink()
    link.symlink_to(other)
    assert b"another-token-altogether" == token.token()
