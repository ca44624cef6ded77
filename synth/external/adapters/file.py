"""An environment in your own Python file, run in a separate process: for packages that cannot be installed here,
or code that crashes.

The file has `problem(seed, split, index)` and either `score(item, answer)` or `episode(item)`, as the docstring of
synth/external/__init__.py says; synth/external/example.py is one.
"""

import hashlib
import importlib.util
import os


class File:
    def __init__(self, path):
        if not os.path.exists(path):
            raise ValueError(f"there is no file {path}")
        spec = importlib.util.spec_from_file_location("espalier_own", path)
        if spec is None or spec.loader is None:
            raise ValueError(f"{path} is no Python file: its name must end in .py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        for lacking in {"problem"} - set(vars(module)):
            raise ValueError(f"{path} has no function {lacking}(seed, split, index)")
        self.turns = hasattr(module, "episode")
        if not self.turns and not hasattr(module, "score"):
            raise ValueError(f"{path} has neither score(item, answer) nor episode(item)")
        with open(path, "rb") as file:
            self.version = hashlib.sha256(file.read()).hexdigest()[:12]
        self.name = os.path.basename(path).partition(".")[0]
        self.problem = module.problem
        self.score = getattr(module, "score", None)
        self.episode = getattr(module, "episode", None)


def file(*, path):
    """path: of the file."""
    return File(path)
