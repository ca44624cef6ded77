"""A stand-in for a vLLM server. `python -m tests.support.stub_server PORT END ABOUT SECONDS [MODEL]` is one in a process of its own, which
takes so long for a turn and holds the model of this folder."""

import json
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np

from training.model.model import load_model
from training.rollout.servers import PROBE, _learned
from training.rollout.vllm_worker import Versioned, _of_folder


class Answers(BaseHTTPRequestHandler):
    """What a vLLM server answers, as far as it is asked: a turn is the seed of the request and the end, or what its model
    says by the adapters that the request names (`adapters`). What it says of a turn of the probe is the model's (`model`)."""

    def log_message(self, *_):
        pass

    def do_GET(self):
        if self.server.gone:
            return self.connection.close()
        models = [{"id": "m", "root": "m", "parent": None}]
        for request in list(self.server.adapters.named.values()) if self.server.adapters else ():
            models.append({"id": request.lora_name, "root": request.lora_path, "parent": "m"})
        answers = {"/v1/models": {"data": models}, "/version": {"version": self.server.release}}
        self._say(answers.get(self.path))

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.before("turn" if self.path == "/v1/completions" and body["temperature"] else body.get("method", ""))
        with self.server.lock:  # its requests come at the same time
            turn = self.path == "/v1/completions" and body["temperature"]  # the probe of the weights is no turn
            self.server.gone |= self.server.dies_at == len(self.server.asked)
            if self.server.gone:
                return self.connection.close()
            if turn:
                self.server.asked.append((tuple(body["prompt"]), body["seed"]))
                self.server.flying.append(body["model"])
                self.server.beside |= {frozenset(self.server.flying)}
        if self.path == "/collective_rpc" and self.server.workers:
            with ThreadPoolExecutor(len(self.server.workers)) as pool:  # each is a process of vLLM's
                ask = lambda w: getattr(w, body["method"])(**body["kwargs"])  # noqa: E731
                told = list(pool.map(ask, self.server.workers))
            return self._say({"results": [t if t is None or isinstance(t, dict) else str(t) for t in told]})
        if self.path == "/collective_rpc":
            if body["method"] in (
                "espalier_claim",
                "espalier_free",
                "espalier_version",
            ):  # who holds it is told by our own code
                told = getattr(self.server.worker, body["method"])(**body["kwargs"])
                if body["method"] != "espalier_version":
                    return self._say({"results": [told]})
            if body["method"] in ("espalier_load", "espalier_hold"):
                self.server.held = body["kwargs"]["version"]
                self.server.loads += body["method"] == "espalier_load"
                if self.server.model is not None and (folder := body["kwargs"].get("folder")):
                    self.server.model.load_state_dict(dict(_of_folder(Path(folder))), strict=False)  # tied ones twice
            held = self.server.held
            receipt = {"checksum": body["kwargs"].get("checksum"), "dtype": self.server.about["dtype"]}
            about = {"holder": self.server.worker.espalier_held_by(), **self.server.about}
            receipts = {"espalier_about": about, "espalier_load": receipt}
            return self._say({"results": [receipts.get(body["method"], None if held is None else str(held))]})
        if self.path in ("/v1/load_lora_adapter", "/v1/unload_lora_adapter"):
            if self.server.adapters is None or not self.server.swaps:
                return self._say({"detail": "Not Found"}, 404)
            with self.server.lock:
                done = (
                    self.server.adapters.load if self.path == "/v1/load_lora_adapter" else self.server.adapters.unload
                )
                code, message = done(**body)
            return self._say(message, 200) if code == 200 else self._say({"error": {"message": message}}, code)
        if self.path == "/v1/completions":
            time.sleep(self.server.slow if turn else 0.0)
            if self.server.adapters is not None:
                with self.server.lock:
                    code, choice = self.server.adapters.turn(body)
                    if turn:
                        self.server.flying.remove(body["model"])
                reply = {"choices": [choice]} if code == 200 else {"error": {"message": choice}}
                return self._say(reply, code)
            ids, logp = [5 + body["seed"] % 50, self.server.end], [self.server.logp, -0.5]
            if self.server.model is not None and not body["temperature"]:
                assert tuple(body["prompt"]) == PROBE
                logp = (_learned(self.server.model, "", np.array(ids)) + self.server.logp + 1.0).tolist()
            choice = {"token_ids": ids, "logprobs": {"token_logprobs": logp}, "finish_reason": "stop"}
            return self._say({"choices": [choice]})
        self._say(None)

    def _say(self, value, code=200):
        """JSON, or a text as it is."""
        body = b"" if value is None else value.encode() if isinstance(value, str) else json.dumps(value).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Server(ThreadingHTTPServer):
    request_queue_size = 128  # all turns of a batch are asked at once; 5 places are few on a busy machine


def stub(end, about, port=0, slow=0.0, adapters=None, workers=(), model=None):
    """One that serves nothing yet. end: the id that ends a turn; about: what it says of its model; slow: seconds of a turn;
    adapters: the model and its adapters, by which turns are then computed (stand_in_vllm.Adapters); workers: those that
    /collective_rpc reaches (weight_server.Worker), in the place of what is answered here; model: takes the weights of folders and answers
    the probe, with log-probs that are off by as much as `logp` is from -1."""
    server = Server(("127.0.0.1", port), Answers)
    server.asked, server.held, server.gone, server.dies_at, server.loads = [], None, False, -1, 0
    server.about, server.release, server.logp, server.lock = dict(about), "0.32.0", -1.0, threading.Lock()
    server.worker = Versioned()
    server.end, server.slow, server.workers, server.model = end, slow, workers, model
    server.before = lambda method: (
        None
    )  # is called with what is asked, before it is answered: a method of the workers', or "turn"
    server.adapters, server.swaps, server.flying, server.beside = adapters, True, [], set()
    return server


if __name__ == "__main__":
    port, end, about, slow, *folder = sys.argv[1:]
    model = load_model(folder[0])[0] if folder else None
    stub(int(end), json.loads(about), int(port), float(slow), model=model).serve_forever()
