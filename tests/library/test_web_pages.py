"""A web page becomes a document with its address; what is private, no text or too large is refused."""

import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from command_line import cli as cli

import localmcp
from localmcp.errors import AccessDenied, InvalidInput, LocalMCPError, Unavailable
from localmcp.library.reading import add_page, fetch_page, is_public

PAGE = b"<html><head><title>Ferry</title></head><body><h1>Ferry</h1><p>The ferry leaves at 6:50.</p></body></html>"


class Site(BaseHTTPRequestHandler):
    pages = {
        "/ferry": ("text/html; charset=utf-8", PAGE),
        "/picture": ("image/png", b"\x89PNG"),
        "/untyped": ("text", PAGE),
        "/large": ("text/plain", b"x" * 2000),
    }

    def do_GET(self):
        if self.path.startswith("/drip"):
            self.drip()
            return
        elsewhere = {
            "/away": f"http://127.0.0.2:{self.server.server_port}/ferry",
            "/moved": "/ferry",
            "/loop": "/loop",
        }
        if self.path in elsewhere:
            self.send_response(302)
            self.send_header("Location", elsewhere[self.path])
            self.end_headers()
            return
        if self.path not in self.pages:
            self.send_error(404)
            return
        kind, body = self.pages[self.path]
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(body)

    def drip(self):
        """A byte now and then, for ever: of a header, of the size of a chunk, or of the page."""
        kind = b"Content-Type: text/plain\r\n"
        heads = {
            "/drip-head": b"X: ",
            "/drip-chunk": kind + b"Transfer-Encoding: chunked\r\n\r\n",
            "/drip": kind + b"\r\n",
        }
        try:
            self.wfile.write(b"HTTP/1.1 200 OK\r\n" + heads[self.path])
            while True:
                self.wfile.write(b"0")
                time.sleep(0.02)
        except OSError:
            pass

    def log_message(self, *_arguments):
        pass


@pytest.fixture(scope="module")
def site():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Site)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def fetch(url, **options):
    return fetch_page(url, max_bytes=1000, allow_private=True, **options)


def test_a_page_is_a_document_with_its_address_and_the_command_line_says_that_the_network_is_used(site, cli):
    refused = cli("add", f"{site}/ferry")
    assert refused.code == 1 and "--allow-private" in refused.err
    added = cli("add", f"{site}/moved", "--allow-private")
    assert added.code == 0 and f"Fetching {site}/moved from the network" in added.err
    file = localmcp.open()
    hit = file.call("search", query="when does the ferry leave", mode="keyword")["results"][0]
    assert (hit["sourceTitle"], hit["sourceType"]) == ("Ferry", "website")
    assert hit["metadata"]["url"] == hit["citation"]["path"] == f"{site}/ferry"
    assert add_page(file.workspace.library, f"{site}/ferry", allow_private=True).added == 0
    assert file.call("get_stats")["totalSources"] == 1


def test_private_addresses_are_refused(site):
    with pytest.raises(AccessDenied, match="--allow-private"):
        fetch_page(f"{site}/ferry", max_bytes=1000)
    private = """10.0.0.1 127.0.0.1 169.254.169.254 ::1 ::ffff:10.0.0.1 64:ff9b::a00:1 2002:a00:1:: ::10.0.0.1
        ::ffff:0:10.0.0.1 64:ff9b:1::a00:1 fec0::1 fc00::1""".split()
    assert not any(map(is_public, private))
    # What is no type says nothing, so the page is text.
    assert fetch(f"{site}/untyped")[2] == "127 0 0 1.txt"
    assert is_public("93.184.216.34") and is_public("2606:4700::1111")


@pytest.mark.parametrize("path", ["/drip", "/drip-head", "/drip-chunk"])
def test_a_page_that_drips_is_given_up(site, monkeypatch, path):
    monkeypatch.setattr("localmcp.library.reading.DEADLINE_SECONDS", 0.3)
    with pytest.raises(Unavailable, match="takes longer than"):
        fetch_page(site + path, max_bytes=1_000_000, allow_private=True)


def test_a_redirect_to_a_private_address_is_refused(site, monkeypatch):
    monkeypatch.setattr("localmcp.library.reading.is_public", lambda address: address == "127.0.0.1")
    with pytest.raises(AccessDenied, match=r"127\.0\.0\.2"):
        fetch_page(f"{site}/away", max_bytes=1000)


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/large", "larger than"),
        ("/picture", "image/png, not text"),
        ("/loop", "redirects more than"),
        ("/nowhere", "status 404"),
    ],
)
def test_what_is_too_large_no_text_or_nowhere_is_refused(site, path, says):
    with pytest.raises(LocalMCPError, match=says):
        fetch(site + path)


def test_an_address_with_a_password_is_refused_and_does_not_show_it(site):
    with pytest.raises(InvalidInput) as refused:
        fetch(site.replace("http://", "http://me:secret@"))
    assert "secret" not in str(refused.value)
    with pytest.raises(InvalidInput, match="it must begin with http"):
        fetch("file:///etc/passwd")
