"""A running resources server of NeMo Gym, reached over HTTP on this machine: its problems are rows of its files
(`data/*.jsonl`), and it scores one reply by `/seed_session` and `/verify`.

If the server answers with an error there is no score; a server that catches its own errors returns 0, which `espalier
env audit` detects.
"""

import hashlib
import json
import urllib.error
import urllib.request
from http.cookiejar import CookieJar
from urllib.parse import urlsplit


class NemoGym:
    turns = False

    def __init__(self, url, train, test, answer):
        if urlsplit(url).hostname not in ("127.0.0.1", "localhost", "::1"):
            raise ValueError(f"{url} is not on this machine: forward its port to 127.0.0.1")
        self.remote, self.url, self.key = url, url.rstrip("/"), answer
        self.rows = {name: read(path) for name, path in (("train", train), ("test", test)) if path}
        self.name, self.version = f"nemo_gym.{urlsplit(url).port}", digest(json.dumps(self.rows))
        try:
            self._post(self._opener(), "/seed_session", {})
        except urllib.error.HTTPError:
            pass  # the server runs, and expects a row
        except OSError as e:
            raise ValueError(f"no resources server answers at {url} ({e}): start it first") from e

    def problem(self, seed, split, index):
        rows = self.rows["train"]
        if split == "test" and "test" in self.rows:
            rows = self.rows["test"]
        elif split != "train" or "test" not in self.rows:
            rows = [r for r in rows if share(r) == split]
        else:
            rows = [r for r in rows if share(r) != "valid"]
        if index >= len(rows):
            return None
        row = rows[index]
        answer = row.get(self.key, "") if self.key else row.get("expected_answer", row.get("answer", ""))
        return {"prompt": asked(row), "answer": answer if isinstance(answer, str) else "", "item": row, "split": split}

    def score(self, item, answer):
        opener = self._opener()
        self._post(opener, "/seed_session", item)
        text = {"type": "output_text", "text": answer, "annotations": []}
        message = {"id": "msg_0", "type": "message", "role": "assistant", "status": "completed", "content": [text]}
        response = {
            "id": "resp_0",
            "created_at": 0.0,
            "model": "policy",
            "object": "response",
            "output": [message],
            "parallel_tool_calls": False,
            "tool_choice": "auto",
            "tools": [],
        }
        verdict = self._post(opener, "/verify", {**item, "response": response})
        parts = {
            k: float(v) for k, v in verdict.items() if isinstance(v, (int, float)) and k != "reward" and k not in item
        }
        return verdict["reward"], parts

    def _opener(self):
        """A separate session, without the machine's proxies."""
        return urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPCookieProcessor(CookieJar())
        )

    def _post(self, opener, path, body):
        request = urllib.request.Request(
            self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}, method="POST"
        )
        with opener.open(request) as reply:
            return json.load(reply)


def asked(row):
    messages = row["responses_create_params"]["input"]
    if isinstance(messages, str):
        return messages
    out = []
    for message in messages:
        content = message["content"]
        if not isinstance(content, str):
            content = "".join(part.get("text", "") for part in content)
        role = "system" if message["role"] == "developer" else message["role"]
        out.append({"role": role, "content": content})
    return out


def read(path):
    try:
        with open(path, encoding="utf-8") as file:
            rows = [json.loads(line) for line in file if line.strip()]
    except (OSError, ValueError) as e:
        raise ValueError(f"{path} is no file of JSON lines: {e}") from e
    for i, row in enumerate(rows, 1):
        if "input" not in row.get("responses_create_params", {}):
            raise ValueError(f"{path}, row {i}: there is no responses_create_params.input")
    return rows


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def share(row):
    """The split of a row, if the files name none."""
    u = int(digest(json.dumps(row["responses_create_params"], sort_keys=True)), 16) / 16**12
    return "test" if u < 0.15 else "valid" if u < 0.25 else "train"


def nemo_gym(*, url, train, test="", answer=""):
    """url: of the server. train, test: its files of rows; without `test` the hash of a row decides its split. answer:
    the key of reference answers (default: expected_answer or answer)."""
    return NemoGym(url, train, test, answer)
