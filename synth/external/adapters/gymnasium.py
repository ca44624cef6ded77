"""Text environments of Gymnasium (PyPI): observations are text (or can be shown as text by the render mode `ansi`), and
an action is text, or one of a few numbered ones."""

import random
import re
from importlib import import_module
from importlib.metadata import version


class Gymnasium:
    turns = True

    def __init__(self, id, module, actions, instructions, turns, config):
        self.package = import_module("gymnasium")
        for name in [module] if module else []:
            import_module(name)
        self.name, self.version = f"gymnasium.{id}", version("gymnasium")
        self.id, self.instructions, self.most, self.config = id, instructions, turns, dict(config)
        try:
            modes = self.package.spec(id).kwargs.get("render_modes") or self._made().metadata.get("render_modes", [])
        except self.package.error.Error as e:
            raise ValueError(f"{e}: name the module that registers it (module)") from e
        if "ansi" in modes:
            self.config.setdefault("render_mode", "ansi")
        env = self._made()
        space, spaces = env.action_space, self.package.spaces
        self.actions = [str(a) for a in actions]
        if isinstance(space, spaces.Discrete):
            self.actions = self.actions or [str(i) for i in range(int(space.n))]
            if len(self.actions) != int(space.n):
                raise ValueError(f"{id} has {int(space.n)} actions, and {len(self.actions)} names are given (actions)")
            self.first = int(space.start)
        elif not isinstance(space, spaces.Text):
            raise ValueError(f"the actions of {id} are {space}: only text and numbered actions can be written")
        if not isinstance(env.observation_space, (spaces.Text, spaces.Discrete)) and "render_mode" not in self.config:
            raise ValueError(
                f"{id} shows {env.observation_space}, which is no text, and it has no render mode ansi: a policy of actions plays it (rl.control, docs/control.md)"
            )
        env.close()

    def _made(self):
        return self.package.make(self.id, **self.config)

    def episode(self, item):
        return Episode(self, self._made(), item["seed"])


class Episode:
    def __init__(self, host, env, seed):
        self.host, self.env, self.seed, self.left = host, env, seed, host.most

    def start(self):
        random.seed(self.seed)
        seen, _ = self.env.reset(seed=self.seed)
        told = self.host.instructions or (
            "Answer with an action: " + ", ".join(self.host.actions) + "." if self.host.actions else ""
        )
        return "\n".join(x for x in (told, self._shown(seen)) if x)

    def step(self, text):
        self.left -= 1
        tagged = text.rpartition("<answer>")[2].partition("</answer>")[0].strip()
        action = tagged
        if self.host.actions:
            names = [a.lower() for a in self.host.actions]
            if tagged.lower() not in names:
                return (
                    f"error: {tagged[:40]!r} is no action; they are {', '.join(self.host.actions)}",
                    not self.left,
                    0.0,
                )
            action = self.host.first + names.index(tagged.lower())
        elif not self.env.action_space.contains(tagged):
            return f"error: {tagged[:40]!r} is no action", not self.left, 0.0
        seen, reward, ended, cut, _ = self.env.step(action)
        return self._shown(seen), bool(ended or cut or not self.left), reward

    def _shown(self, seen):
        shown = self.env.render() if self.host.config.get("render_mode") == "ansi" else seen
        return re.sub(r"\x1b\[[0-9;]*m", "", re.sub(r"\x1b\[4\dm(.*?)\x1b\[0m", r"[\1]", str(shown)))

    def close(self):
        self.env.close()


def gymnasium(*, id, module="", actions=(), instructions="", turns=32, **config):
    """id: of the environment. module: imported first, if it registers the environment. actions: names of numbered
    actions. instructions: text before the first observation. turns: the most turns of an episode. The others are passed
    to `make`."""
    return Gymnasium(id, module, actions, instructions, turns, config)
