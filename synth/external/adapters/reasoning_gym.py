"""reasoning-gym (PyPI): https://github.com/open-thought/reasoning-gym.

Its data set draws item i from the seed `seed + i`, so sets of neighbouring seeds share items; here each item is the
first of a separate set, whose seed is hashed. `native: true` draws as the package does (train, valid and test from the
seeds 0, 1 and 2), to reproduce what others train on.
"""

from importlib import import_module


class ReasoningGym:
    turns = False

    def __init__(self, task, native, config):
        self.package = import_module("reasoning_gym")
        self.name, self.native, self.config = f"reasoning_gym.{task}", native, config
        self.version = import_module("importlib.metadata").version("reasoning-gym")
        self.task, self.sets = task, {}
        try:
            self.scorer = self.package.create_dataset(task, size=1, seed=0, **config)
        except TypeError as e:
            raise ValueError(f"the task {task} takes no such option: {e}") from e
        except AssertionError as e:
            raise ValueError(f"the task {task} refuses its options: {e}") from e
        except ValueError as e:
            known = import_module("reasoning_gym.factory").DATASETS
            raise ValueError(f"{e}; some of its {len(known)} tasks are {', '.join(sorted(known)[:12])}") from e

    def problem(self, seed, split, index):
        if self.native:
            if split not in self.sets:
                first = ("train", "valid", "test").index(split)
                self.sets[split] = self.package.create_dataset(self.task, size=1 << 20, seed=first, **self.config)
            entry = self.sets[split][index]
        else:
            entry = self.package.create_dataset(self.task, size=1, seed=seed % 2**32, **self.config)[0]
        row = {"prompt": entry["question"], "answer": entry["answer"], "item": plain(entry)}
        return {**row, "split": split} if self.native else row

    def score(self, item, answer):
        return self.scorer.score_answer(answer, item)


def plain(value):
    """The entry as JSON. Raises TypeError for one that scoring could not read again."""
    json = import_module("json")
    return json.loads(json.dumps(value))


def reasoning_gym(*, task, native=False, **config):
    """task: one of its data sets. native: draw as the package does. The others are options of the task."""
    return ReasoningGym(task, native, config)
