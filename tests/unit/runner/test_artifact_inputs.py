"""Input artifacts: downloaded from servers that are not trusted, and unpacked from archives that are not."""

import hashlib
import io
import json
import resource
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from perdure.runner.artifacts.input_artifacts import Inputs, main
from perdure.runner.artifacts.programs import ArtifactError

_BIG = 256 * 1024 * 1024
_Answer = Callable[[BaseHTTPRequestHandler], None]


def prepare(artifact: dict[str, Any], folder: Path) -> None:
    Inputs(folder, {}).prepare(artifact)


@pytest.fixture
def serve() -> Iterator[Callable[[_Answer], str]]:
    """Serve HTTP on loopback, and yield the URL."""
    servers: list[ThreadingHTTPServer] = []

    def start(answer: _Answer) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                answer(self)

            def log_message(self, *_: Any) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_address[1]}/file"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def content(data: bytes, *, length: int | None = None, status: int = 200) -> _Answer:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        request.send_header("Content-Length", str(len(data) if length is None else length))
        request.end_headers()
        request.wfile.write(data)

    return answer


def archive(*members: tarfile.TarInfo, mode: str = "w:gz") -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode=mode) as tar:  # type: ignore[call-overload]
        for member in members:
            tar.addfile(member, io.BytesIO(b"x" * member.size))
    return made.getvalue()


def member(name: str, type_: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    found = tarfile.TarInfo(name)
    found.type, found.linkname, found.mode = type_, link, 0o4777
    found.size = 3 if type_ == tarfile.REGTYPE else 0
    return found


def test_a_text_becomes_a_file(tmp_path: Path) -> None:
    prepare({"name": "config", "data": "größe: 1\n"}, tmp_path)
    assert (tmp_path / "config").read_text(encoding="utf-8") == "größe: 1\n"


def test_a_file_is_downloaded_and_verified_with_its_hash(serve: Callable[[_Answer], str], tmp_path: Path) -> None:
    url, digest = serve(content(b"abc")), hashlib.sha256(b"abc").hexdigest()
    prepare({"name": "data", "url": url, "sha256": digest.upper()}, tmp_path)
    assert (tmp_path / "data").read_bytes() == b"abc"
    with pytest.raises(ArtifactError, match=f"artifact `other`: the SHA-256 of the file is {digest}"):
        prepare({"name": "other", "url": url, "sha256": "0" * 64}, tmp_path)
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("mode", ["w:gz", "w:xz", "w"])
def test_an_archive_becomes_a_folder(serve: Callable[[_Answer], str], tmp_path: Path, mode: str) -> None:
    inside = member("src/link", tarfile.SYMTYPE, "main.py")
    url = serve(content(archive(member("src/main.py"), inside, mode=mode)))
    prepare({"name": "code", "url": url, "archive": "Tar"}, tmp_path)
    assert (tmp_path / "code/src/main.py").read_bytes() == b"xxx"
    assert (tmp_path / "code/src/main.py").stat().st_mode & 0o7022 == 0, "no set-user-ID, and no one else writes"
    assert (tmp_path / "code/src/link").read_bytes() == b"xxx"
    assert [each.name for each in tmp_path.iterdir()] == ["code"]


@pytest.mark.parametrize(
    "hostile",
    [
        member("../escaped"),
        member("/escaped"),
        member("a/../../escaped"),
        member("link", tarfile.SYMTYPE, "/etc/passwd"),
        member("link", tarfile.SYMTYPE, "../escaped"),
        member("hard", tarfile.LNKTYPE, "../escaped"),
        member("device", tarfile.CHRTYPE),
        member("pipe", tarfile.FIFOTYPE),
    ],
    ids=[
        "parent",
        "absolute path",
        "hidden parent",
        "absolute link",
        "link outside",
        "hard link outside",
        "device",
        "pipe",
    ],
)
def test_an_archive_cannot_write_outside_of_its_folder(
    serve: Callable[[_Answer], str], tmp_path: Path, hostile: tarfile.TarInfo
) -> None:
    folder = tmp_path / "volume"
    folder.mkdir()
    (folder / "escaped").write_text("mine")
    url = serve(content(archive(member("first"), hostile)))
    with pytest.raises(ArtifactError, match="artifact `code`: "):
        prepare({"name": "code", "url": url, "archive": "Tar"}, folder)
    assert (folder / "escaped").read_text() == "mine"
    assert [each.name for each in tmp_path.iterdir()] == ["volume"]


def test_a_link_cannot_be_followed_by_a_later_file(serve: Callable[[_Answer], str], tmp_path: Path) -> None:
    members = (member("deep/link", tarfile.SYMTYPE, ".."), member("deep/link/../../escaped"))
    url = serve(content(archive(*members)))
    with pytest.raises(ArtifactError):
        prepare({"name": "code", "url": url, "archive": "Tar"}, tmp_path)
    assert not (tmp_path / "escaped").exists()


def test_links_are_not_followed_when_writing(serve: Callable[[_Answer], str], tmp_path: Path) -> None:
    (tmp_path / "volume").mkdir()
    through = (member("here", tarfile.SYMTYPE, "."), member("here/up", tarfile.SYMTYPE, ".."), member("up/escaped"))
    below_a_file = (member("link", tarfile.SYMTYPE, "first"), member("first"), member("link/escaped"))
    for name, members in {"through": through, "below": below_a_file}.items():
        url = serve(content(archive(*members)))
        with pytest.raises(ArtifactError, match="in the archive is in a link or a file"):
            prepare({"name": name, "url": url, "archive": "Tar"}, tmp_path / "volume")
    assert not list(tmp_path.rglob("escaped"))


def test_a_later_member_replaces_an_earlier_one(serve: Callable[[_Answer], str], tmp_path: Path) -> None:
    link, hard = member("a", tarfile.SYMTYPE, "b"), member("c", tarfile.LNKTYPE, "./b")
    url = serve(content(archive(member("./", tarfile.DIRTYPE), member("b"), link, member("a"), hard)))
    prepare({"name": "code", "url": url, "archive": "Tar"}, tmp_path)
    assert {each.name: each.is_symlink() for each in (tmp_path / "code").iterdir()} == dict.fromkeys("abc", False)


def redirects_to_a_file(request: BaseHTTPRequestHandler) -> None:
    request.send_response(302)
    request.send_header("Location", "file:///etc/passwd")
    request.send_header("Content-Length", "0")
    request.end_headers()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (content(b"abc", length=10), "ended after 3 of 10 bytes"),
        (content(b"no", status=403), "returned HTTP status 403"),
        (redirects_to_a_file, "HTTP status 302"),
    ],
    ids=["cut off", "refused", "redirected to a file"],
)
def test_a_download_that_fails_leaves_no_artifact(
    serve: Callable[[_Answer], str], tmp_path: Path, answer: _Answer, said: str
) -> None:
    with pytest.raises(ArtifactError, match=said):
        prepare({"name": "data", "url": serve(answer)}, tmp_path)
    assert not (tmp_path / "data").exists()


def test_a_truncated_archive_is_an_error(serve: Callable[[_Answer], str], tmp_path: Path) -> None:
    complete = archive(member("first"), member("second"), mode="w:gz")
    with pytest.raises(ArtifactError):
        prepare({"name": "code", "url": serve(content(complete[:-20])), "archive": "Tar"}, tmp_path)


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://127.0.0.1/x", "/etc/passwd", "http://127.0.0.1:1/"])
def test_only_http_urls_are_accepted(tmp_path: Path, url: str) -> None:
    with pytest.raises(ArtifactError, match=r"must begin with|refused"):
        prepare({"name": "data", "url": url}, tmp_path)


def test_the_program_reports_the_artifact_that_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = [{"name": "a", "data": "1"}, {"name": "b", "url": "file:///x"}]
    environ = {"PERDURE_ARTIFACTS": json.dumps(wanted), "PERDURE_ARTIFACTS_FOLDER": str(tmp_path)}
    assert main(environ) == 1
    assert capsys.readouterr().err.startswith("artifact `b`: the URL must begin with")
    assert main({**environ, "PERDURE_ARTIFACTS": json.dumps(wanted[:1])}) == 0


def test_downloading_a_large_file_takes_little_memory(serve: Callable[[_Answer], str], tmp_path: Path) -> None:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Content-Length", str(_BIG))
        request.end_headers()
        piece = b"\0" * 1024 * 1024
        for _ in range(_BIG // len(piece)):
            request.wfile.write(piece)

    wanted = [{"name": "big", "url": serve(answer)}]
    program = [sys.executable, "-m", "perdure.runner.artifacts.input_artifacts"]
    environ = {"PERDURE_ARTIFACTS": json.dumps(wanted), "PERDURE_ARTIFACTS_FOLDER": str(tmp_path)}

    def bound() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (_BIG // 2, _BIG // 2))

    done = subprocess.run(program, env=environ, preexec_fn=bound, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "big").stat().st_size == _BIG
