"""A stand-in for a vLLM server whose weights come as they come to a real one: by our worker extension (`Versioned`), into a model by
which it then answers. `python -m tests.support.weight_server PORT FOLDER ENDS DEVICE` is one in a process of its own."""

import os
import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import torch

HERE = Path(__file__).resolve().parent
if __name__ == "__main__":
    sys.path.insert(0, str(HERE))

from stand_in_vllm import Adapters
from stub_server import stub

from training.rollout.vllm_worker import Versioned


class Worker(Versioned):
    """As vLLM's: `reload_weights` takes the names of a model, and keeps what came until a layer is whole.

    ends   weights after which it ends its process, or waits where it is negative; 0: it does not
    came   what came last
    """

    def __init__(self, model, folder, rank=0, size=1, ends=0, device="cpu"):
        self.model, self.rank, self.ends, self.came, self.begun = model, rank, ends, {}, 0
        self.device, self.lora_config = torch.device(device), None
        of = {"hf_text_config": model.config, "tokenizer": str(folder), "trust_remote_code": False}
        self.model_config = SimpleNamespace(dtype=torch.float32, max_model_len=128, **of)
        self.parallel_config = SimpleNamespace(world_size=size, data_parallel_size=1)

    def reload_weights(self, weights_iterator):
        self.came, self.begun = {}, self.begun + 1
        for name, t in weights_iterator:
            self.came[name] = t
            if self.ends and len(self.came) == abs(self.ends):
                if self.ends > 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                time.sleep(3.0)
        if self.rank == 0 and len(self.came) == len(self.model.state_dict()):
            self.model.load_state_dict(self.came)


def server(folder, end, port=0, workers=1, ends=0, device="cpu"):
    adapters = Adapters(folder)
    members = [Worker(adapters.llm.model, folder, rank, workers, ends, device) for rank in range(workers)]
    return stub(end, {}, port, adapters=adapters, workers=members)


if __name__ == "__main__":
    port, folder, ends, device = sys.argv[1:]
    server(Path(folder), 0, int(port), ends=int(ends), device=device).serve_forever()
