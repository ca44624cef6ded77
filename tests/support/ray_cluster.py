"""A Ray cluster of this machine for tests: as many "machines" as asked for, on addresses of the loopback interface."""

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
from ports import free_port

from tasks.runtime import process

PATIENCE = 120.0
# Ray listens on all interfaces and takes a token; without one of ours it would write one into the user's home.
TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}


class RayCluster:
    """address: of its head. Whoever connects needs the environment variables of TOKEN."""

    def __init__(self, folder: Path, cpus: int = 2) -> None:
        self.folder, self.nodes = folder, []
        self.address = f"127.0.0.2:{free_port()}"  # 127.0.0.1 Ray replaces by the address of an interface
        self.begin(0, "--head", "--port", self.address.split(":")[1], "--include-dashboard", "false", cpus=cpus)
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            with (
                contextlib.suppress(OSError),
                socket.create_connection(("127.0.0.2", int(self.address.split(":")[1])), 1),
            ):
                return
            assert self.nodes[0].poll() is None, (folder / "0.log").read_text()
            time.sleep(0.1)
        raise AssertionError(f"no head within {PATIENCE:g} s: {(folder / '0.log').read_text()}")

    def begin(self, k: int, *more: str, cpus: int = 2) -> None:
        """Start the machine `k`."""
        command = [
            *process.ending_with_us("ray.scripts.scripts", "start"), "--block", "--num-cpus", str(cpus), "--object-store-memory", "80000000",
            "--node-ip-address", f"127.0.0.{k + 2}", "--temp-dir", str(self.folder / f"t{k}"), "--include-log-monitor", "false",
            "--disable-usage-stats", "--min-worker-port", "0", "--max-worker-port", "0",
            "--dashboard-agent-listen-port", str(free_port()), *more,
        ]  # fmt: skip
        with (self.folder / f"{k}.log").open("w") as log:
            self.nodes.append(
                subprocess.Popen(
                    command,
                    env={**os.environ, **TOKEN},
                    cwd=self.folder,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )

    def join(self) -> None:
        """Start another machine."""
        self.begin(len(self.nodes), "--address", self.address)

    def lose(self, k: int) -> None:
        """End a machine with all its processes."""
        with contextlib.suppress(psutil.NoSuchProcess):
            head = psutil.Process(self.nodes[k].pid)
            every = [head, *head.children(recursive=True)]
            for p in every:
                with contextlib.suppress(psutil.NoSuchProcess):
                    p.kill()
            psutil.wait_procs(every, timeout=10)
        self.nodes[k].wait()


@contextlib.contextmanager
def ray_cluster(cpus: int = 2) -> Iterator[RayCluster]:
    before = {k: os.environ.get(k) for k in TOKEN}
    os.environ.update(TOKEN)
    folder = Path(tempfile.mkdtemp(prefix="ray"))  # a short path: Ray's sockets are below it, and may have 107 letters
    cluster = RayCluster(folder, cpus)
    try:
        yield cluster
    finally:
        for k in range(len(cluster.nodes)):
            cluster.lose(k)
        shutil.rmtree(folder, ignore_errors=True)
        for k, v in before.items():
            os.environ.pop(k) if v is None else os.environ.__setitem__(k, v)
