"""Logins to remote servers, against a real authorization server on loopback, with an HTTP client as the browser."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from federation import SERVERS, Farm

from localmcp.cli.program import execute
from localmcp.cli.session import Session
from localmcp.config import state_directory
from localmcp.errors import InvalidInput, Unavailable
from localmcp.hub.auth import LoginNeeded, forget_login, sign_in
from localmcp.hub.entries import parse_entry

SECRET = "the treasure is below the oak"


class Signed:
    """The running server."""

    def __init__(self, lifetime: int) -> None:
        command = [sys.executable, str(SERVERS / "signed.py"), str(lifetime)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.base = f"http://127.0.0.1:{int(self.process.stdout.readline())}"
        self.entry = {"type": "http", "url": f"{self.base}/mcp"}

    def post(self, path: str) -> None:
        httpx2.post(self.base + path).raise_for_status()

    @property
    def counts(self) -> dict[str, int]:
        return httpx2.get(self.base + "/counts").json()

    def close(self) -> None:
        self.process.terminate()
        self.process.communicate(timeout=20)


@pytest.fixture(scope="module")
def lasting() -> Iterator[Signed]:
    server = Signed(3600)
    yield server
    server.close()


def browser(change: Callable[[str], str] = lambda url: url) -> Callable[[str], None]:
    """A browser that follows redirects; `change` alters the address it is sent back to."""

    def visit(url: str) -> None:
        target = change(httpx2.get(url, timeout=60).headers["location"])
        httpx2.get(target, timeout=60)

    return lambda url: threading.Thread(target=visit, args=(url,)).start()


async def login(server: Signed, show: Callable[[str], None], seconds: float = 20) -> bool:
    return await sign_in(parse_entry("vault", server.entry), show, seconds)


def call(farm: Farm) -> str:
    return farm.open()[0].call("vault__secret").text


async def test_a_login_opens_the_server_also_for_other_processes_and_later_runs(lasting: Signed, farm: Farm) -> None:
    farm.write(vault=lasting.entry)
    with pytest.raises(LoginNeeded, match="sign in") as caught:
        call(farm)
    assert caught.value.hint and "localmcp servers login vault" in caught.value.hint
    assert await login(lasting, browser())
    assert (call(farm), call(farm)) == (SECRET, SECRET)
    (kept,) = (state_directory() / "logins").iterdir()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600 or sys.platform == "win32"


async def test_a_server_that_cannot_be_signed_in_to_says_why(lasting: Signed) -> None:
    entries: dict[str, dict[str, Any]] = {
        "is a program": {"command": "x"},
        "has an Authorization header": {**lasting.entry, "headers": {"Authorization": "Bearer x"}},
        "without TLS": {"url": "http://example.org/mcp"},
    }
    for message, entry in entries.items():
        with pytest.raises(InvalidInput, match=message):
            await sign_in(parse_entry("vault", entry), browser())


async def test_a_person_who_refuses_is_not_signed_in(lasting: Signed, farm: Farm) -> None:
    lasting.post("/person?answer=deny")
    try:
        with pytest.raises(Unavailable, match="access_denied"):
            await login(lasting, browser())
    finally:
        lasting.post("/person?answer=allow")
    assert not (state_directory() / "logins").exists()


async def test_an_answer_with_another_state_is_ignored_until_time_is_up(lasting: Signed) -> None:
    forged = browser(lambda url: url.partition("state=")[0] + "state=forged")
    with pytest.raises(Unavailable, match="Nobody signed in"):
        await login(lasting, forged, seconds=1.5)


@asynccontextmanager
async def signed_in(farm: Farm, lifetime: int) -> AsyncIterator[Signed]:
    """A server whose tokens last so many seconds, to which somebody has logged in."""
    server = Signed(lifetime)
    try:
        farm.write(vault=server.entry)
        assert await login(server, browser())
        yield server
    finally:
        server.close()


def expire(server: Signed) -> None:
    """End the access tokens, also for a later run."""
    server.post("/expire")
    (kept,) = (state_directory() / "logins").iterdir()
    kept.write_text(json.dumps({**json.loads(kept.read_text()), "expiresAt": 1}))


async def test_an_expired_token_is_refreshed_in_a_later_run_and_a_dead_login_is_asked_for_again(farm: Farm) -> None:
    async with signed_in(farm, 60) as server:
        expire(server)
        assert call(farm) == SECRET
        assert server.counts["authorized"] == 1 and server.counts["refreshed"] >= 1
        expire(server)
        server.post("/forget")
        with pytest.raises(LoginNeeded):
            call(farm)
        assert server.counts["registered"] == 1


async def test_a_process_that_still_runs_keeps_no_tokens_after_a_sign_out(farm: Farm) -> None:
    async with signed_in(farm, 1) as server:
        registry, _ = farm.open()
        assert registry.call("vault__secret").text == SECRET
        assert forget_login(parse_entry("vault", server.entry))
        server.post("/expire")
        time.sleep(1.1)
        for _ in range(2):
            with pytest.raises(Unavailable):
                registry.call("vault__secret")
        with pytest.raises(LoginNeeded):
            registry.call("vault__secret")
        assert not any((state_directory() / "logins").iterdir())


def test_login_and_logout_are_commands(
    lasting: Signed, farm: Farm, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    farm.write(vault=lasting.entry)
    monkeypatch.setattr("click.launch", browser())
    assert execute(Session(), ["servers", "login", "vault", "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out) == {"server": "vault", "signedIn": True, "tools": 1}
    assert "Sign in at: http://127.0.0.1" in printed.err
    for signed_out in (True, False):
        execute(Session(), ["servers", "logout", "vault", "--json"])
        assert json.loads(capsys.readouterr().out)["signedOut"] is signed_out
    monkeypatch.setattr("click.launch", lambda url: pytest.fail(f"{url} was opened"))
    assert execute(Session(), ["servers", "login", "vault", "--no-browser", "--timeout", "1"]) == 3
    printed = capsys.readouterr().err
    assert f"Sign in at: {lasting.base}/" in printed and "Nobody signed in" in printed
