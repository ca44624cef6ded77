"""A server that speaks the chat-completions protocol, on a real socket of this machine, for tests."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Server:
    """An OpenAI-compatible endpoint: `answer(body) -> text`; `script` holds what to do first, one entry per request: a
    status, or bytes."""

    def __init__(self, answer) -> None:
        self.answer, self.script, self.bodies, self.headers = answer, [], [], []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.bodies.append(body)
                outer.headers.append(dict(self.headers))
                step = outer.script.pop(0) if outer.script else 200
                if isinstance(step, bytes):
                    data, code = step, 200
                elif step != 200:
                    data, code = json.dumps({"error": {"message": "no such model"}}).encode(), step
                else:
                    text = outer.answer(body)
                    prompt = sum(len(m["content"].split()) for m in body["messages"])
                    data, code = (
                        json.dumps(
                            {
                                "id": "chatcmpl-1",
                                "object": "chat.completion",
                                "model": body["model"],
                                "choices": [
                                    {
                                        "index": 0,
                                        "message": {"role": "assistant", "content": text},
                                        "finish_reason": "stop",
                                    }
                                ],
                                "usage": {
                                    "prompt_tokens": prompt,
                                    "completion_tokens": len(text.split()),
                                    "total_tokens": 0,
                                },
                            }
                        ).encode(),
                        200,
                    )
                self.send_response(code if self.path == "/v1/chat/completions" else 404)
                if code == 429:
                    self.send_header("Retry-After", "7")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/v1"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()
