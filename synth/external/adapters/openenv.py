"""A running environment server of OpenEnv, reached through its WebSocket on this machine: a connection is an episode.
The model's text fills one field of an action, and one field of an observation is shown to the model.
"""

import json
import urllib.request
from urllib.parse import urlsplit


class Openenv:
    turns = True

    def __init__(self, url, action, observation, more, instructions, turns):
        if urlsplit(url).hostname not in ("127.0.0.1", "localhost", "::1"):
            raise ValueError(f"{url} is not on this machine: forward its port to 127.0.0.1")
        from websockets.sync.client import connect

        self.connect, self.remote, self.url = connect, url, url.rstrip("/")
        self.action, self.observation, self.more = action, observation, dict(more)
        self.instructions, self.most = instructions, turns
        try:
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            with opener.open(f"{self.url}/schema") as reply:
                schema = json.load(reply)
        except (OSError, ValueError) as e:
            raise ValueError(f"no OpenEnv server answers at {url} ({e}): start it first") from e
        for kind, field in (("action", action), ("observation", observation)):
            known = [k for k in schema[kind]["properties"] if k not in ("metadata", "done", "reward")]
            if field not in known:
                raise ValueError(
                    f"the {kind} of {url} has no field {field!r}, but {', '.join(known)}: name one ({kind})"
                )
        self.name, self.version = f"openenv.{schema['action'].get('title', 'environment')}", str(urlsplit(url).port)

    def episode(self, item):
        return Episode(self, item["seed"])


class Episode:
    def __init__(self, host, seed):
        self.host, self.seed, self.left = host, seed, host.most
        self.socket = host.connect(host.url.replace("http", "ws", 1) + "/ws", proxy=None, max_size=16 << 20)

    def start(self):
        shown, _, _ = self._told("reset", {"seed": self.seed})
        return "\n".join(x for x in (self.host.instructions, shown) if x)

    def step(self, text):
        self.left -= 1
        action = text.rpartition("<answer>")[2].partition("</answer>")[0].strip()
        shown, over, reward = self._told("step", {**self.host.more, self.host.action: action})
        return shown, over or not self.left, reward

    def _told(self, kind, data):
        self.socket.send(json.dumps({"type": kind, "data": data}))
        reply = json.loads(self.socket.recv())
        if reply["type"] != "observation":
            raise RuntimeError(f"the server says {json.dumps(reply.get('data'))[:300]}")
        seen = reply["data"]
        shown = seen["observation"].get(self.host.observation, "")
        return shown if isinstance(shown, str) else json.dumps(shown), bool(seen["done"]), float(seen["reward"] or 0.0)

    def close(self):
        self.socket.close()


def openenv(*, url, action, observation, more={}, instructions="", turns=32):  # noqa: B006 (given by name, never changed)
    """url: of the server. action: the field of an action that the model's text fills, `more` the others. observation:
    the field that is shown. instructions: text before the first observation. turns: the most turns of an episode."""
    return Openenv(url, action, observation, more, instructions, turns)
