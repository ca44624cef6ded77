"""Ports of servers that tests start on this machine."""

import itertools
import os
import random
import socket

SLICE = 1000  # ports of one worker of pytest-xdist
FIRST, SLICES = 12_000, 20  # below 32,768, from where systems give ports to whoever asks for any
_tried = itertools.count(random.SystemRandom().randrange(SLICE))


def free_port() -> int:
    """A port that nobody listens at. A server needs seconds until it does: a port that the system chose could by then be
    that of a connection, or of another worker's server, so each worker counts through ports of its own. RuntimeError
    where all are in use."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    first = FIRST + SLICE * (int(worker.removeprefix("gw") or 0) % SLICES)
    for n in itertools.islice(_tried, SLICE):
        port = first + n % SLICE
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise RuntimeError(f"the ports {first} to {first + SLICE - 1} are all in use")
