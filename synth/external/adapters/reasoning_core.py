"""reasoning-core (PyPI): https://github.com/sileod/reasoning_core."""

import json
import random
from importlib import import_module
from importlib.metadata import version


class ReasoningCore:
    turns = False

    def __init__(self, task, level, config):
        self.package = import_module("reasoning_core")
        self.name, self.version = f"reasoning_core.{task}", version("reasoning-core")
        known = self.package.list_tasks()
        if task not in known:
            raise ValueError(f"it has no task {task!r}; some of its {len(known)} are {', '.join(sorted(known)[:12])}")
        self.task, self.level, self.config = task, level, config

    def problem(self, seed, split, index):
        random.seed(seed)
        import_module("numpy").random.seed(seed % 2**32)
        drawn = self.package.get_task(self.task, **self.config)
        if self.level is not None:
            drawn.config.set_level(self.level)
        entry = drawn.generate_example()
        item = {"prompt": entry.prompt, "answer": entry.answer, "metadata": entry.metadata, "task": entry.task}
        return {"prompt": entry.prompt, "answer": entry.answer, "item": json.loads(json.dumps(item))}

    def score(self, item, answer):
        return self.package.score_answer(answer, item)


def reasoning_core(*, task, level=None, **config):
    """task: one of its tasks. level: of difficulty. The others are options of the task."""
    return ReasoningCore(task, level, config)
