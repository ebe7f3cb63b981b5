"""Milvus for tests: a Milvus Lite file, `milvus-lite server` over loopback, and, if asked for, the real server.

The real one is the wheel `milvus==2.3.5` in a virtual environment of its own. It listens on every interface, so it only
starts where there is no other than loopback:

    LOCALMCP_REAL_MILVUS=VENV/bin/python unshare -n bash -c 'ip link set lo up; pytest tests/milvus/test_milvus.py'
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from localmcp.milvus.client import Server
from localmcp.milvus.collection import Milvus

TIMEOUT = 30.0

needs_lite = pytest.mark.skipif(
    importlib.util.find_spec("pymilvus") is None or importlib.util.find_spec("milvus_lite") is None,
    reason="pip install 'localmcp[milvus-lite]'",
)
real_python = os.environ.get("LOCALMCP_REAL_MILVUS", "")
needs_real = pytest.mark.skipif(not real_python, reason="set LOCALMCP_REAL_MILVUS to a Python that has milvus==2.3.5")


class LiteServer:
    """`milvus-lite server` in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.start()

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, or start it again, on the same port and folder."""
        command = [sys.executable, "-m", "milvus_lite", "server", "--host", "127.0.0.1"]
        command += ["--port", str(self.port), "--data-dir", str(self.folder)]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(self.port, self.process)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until somebody listens on the port."""
    while process.poll() is None:
        with socket.socket() as probe:
            probe.settimeout(0.2)
            # A free port may be given to the probe itself, which is then connected with itself.
            if probe.connect_ex(("127.0.0.1", port)) == 0 and probe.getsockname() != probe.getpeername():
                return
        # The server computes for seconds before it listens; asking all the time would take half of the processor.
        time.sleep(0.05)
    raise RuntimeError(f"the server ended with {process.returncode}")


@cache
def shared_server() -> LiteServer:
    """One server for the whole run."""
    server = LiteServer(Path(tempfile.mkdtemp(prefix="milvus")) / "data")
    atexit.register(server.kill)
    return server


REAL_SERVER = """
import sys
from milvus import MilvusServer

server = MilvusServer()
server.set_base_dir(sys.argv[1])
for part in ("rootCoord", "proxy", "queryCoord", "queryNode", "indexNode", "dataCoord", "dataNode"):
    server.config.set(part + ".ip", "127.0.0.1")
if sys.argv[2] == "auth":
    server.config.set("authorization_enabled", True)
server.start()
print(server.listen_port, flush=True)
sys.stdin.read()
server.stop()
"""


class RealServer:
    """The real server; one at a time, because its inner ports are fixed."""

    running: RealServer | None = None

    def __init__(self, mode: str) -> None:
        self.mode = mode
        command = [real_python, "-c", REAL_SERVER, tempfile.mkdtemp(prefix="milvus"), mode]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        port = next(line for line in self.process.stdout if line.strip().isdigit())
        self.uri = f"http://127.0.0.1:{port.strip()}"

    @classmethod
    def stop(cls) -> None:
        if cls.running is not None:
            cls.running.process.communicate()
            cls.running = None


def real_server(mode: str = "open") -> str:
    """The address of the real server, started at need; mode `auth` asks for root:Milvus."""
    if [name for _, name in socket.if_nameindex()] != ["lo"]:
        pytest.skip("the real server listens on every interface: run it inside `unshare -n`")
    if RealServer.running is None:
        atexit.register(RealServer.stop)
    elif RealServer.running.mode != mode:
        RealServer.stop()
    RealServer.running = RealServer.running or RealServer(mode)
    return RealServer.running.uri


def open_empty(uri: str, timeout: float = TIMEOUT, token: str = "") -> Milvus:
    """That server, with nothing in it."""
    milvus = Milvus(Server(uri, token=token, timeout=timeout))
    for name in milvus.names():
        milvus.drop(name)
    return milvus


@contextmanager
def opened(kind: str, folder: Path) -> Iterator[Milvus]:
    """An empty Milvus of that kind."""
    uri = {
        "milvus-lite": lambda: str(folder / "milvus.db"),
        "milvus-server": lambda: shared_server().uri,
        "milvus-real": real_server,
    }[kind]()
    milvus = open_empty(uri, timeout=60)
    try:
        yield milvus
    finally:
        milvus.close()


marks: dict[str, pytest.MarkDecorator] = {
    "milvus-lite": needs_lite,
    "milvus-server": needs_lite,
    "milvus-real": needs_real,
}
milvus_kinds = [pytest.param(name, marks=marks[name]) for name in marks]
"""For `pytest.fixture(params=...)`: what `opened` takes, skipped where it cannot run."""
