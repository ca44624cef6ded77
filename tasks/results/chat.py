"""Talk to a trained model: it plays a question as it played those of its training, and every turn is reported as it
happens.

Environments, passages per query and token limits are those of the stage evaluate, so that the model gets the same
instructions here. Each question is a conversation of its own, as in training. In a project without a knowledge base (of
`espalier train`) the model is asked without a search tool, and answers in one turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from synth.types import Message, Problem, Sampling, digest
from tasks.core.errors import UserError
from tasks.evaluation.outcome import outcome
from tasks.knowledge import knowledge
from tasks.models import tools
from tasks.models.generation import way_of
from tasks.planning import plan
from tasks.planning.pieces import bind
from tasks.planning.settings import EvaluationSampling
from tasks.runtime.models import model_path
from tasks.runtime.stage import graph
from tasks.results.decoding import decoder_of
from tasks.storage import tables
from training.model.model import load_model
from training.model.render import Renderer
from training.rollout.play import Player
from training.rollout.torch_sampler import TorchSampler
from training.types import Group

Said = Callable[[Message], None]


@dataclass(frozen=True)
class Ending:
    """How a conversation ended: one of `evaluate.OUTCOMES`, with "answered" for an answer that cannot be checked; the
    reference answer if the question is in artifacts/questions, else ""."""

    outcome: str
    reference: str
    calls: int


@dataclass(frozen=True)
class _Aloud:
    """An environment that reports every turn while it is played."""

    env: Any
    said: Said

    def start(self, problem: Problem, tools: Any) -> tuple[dict, list[Message]]:
        return self.env.start(problem, tools)

    def step(self, state: dict, text: str) -> tuple[list[Message], bool, Any]:
        self.said(Message(role="assistant", content=text))
        told, over, score = self.env.step(state, text)
        for message in told:
            self.said(message)
        return told, over, score


class Chat:
    """`ask(question, said) -> Ending`. Raises UserError if the model, its tokenizer or the knowledge base is missing.

    model         base, sft, prefer or rl (in artifacts/), a folder in Hugging Face layout, or a Hub id
    kb            folder that holds passages.parquet
    temperature   0 is greedy
    decoder       a piece of the kind decode, with the knobs that evaluate.decoders gives it; "" answers plainly
    tokens        forward tokens that a decoder may spend on a turn; 0 sets no bound

    `accounts` holds those of the turns that a decoder has answered, in order.
    """

    def __init__(
        self,
        root: Path,
        model: str,
        *,
        kb: Path | None = None,
        temperature: float = 0.0,
        seed: int = 0,
        decoder: str = "",
        tokens: int = 0,
    ) -> None:
        path = model_path(root, model)
        passages = (kb or root / "artifacts" / "kb") / "passages.parquet"
        self.alone = kb is None and not passages.exists() and bool(stages := graph(root)) and "kb" not in stages
        if not passages.exists() and not self.alone:
            raise UserError(
                f"{passages} does not exist, so there is nothing to search: `dvc repro kb` makes it, or name a folder with --kb"
            )
        if temperature < 0:
            raise UserError(
                f"the temperature is {temperature}: 0 is greedy, 1 samples as in training, less than 0 means nothing"
            )
        self.settings = plan.plans(root, changed=lambda params: params)["evaluate"]["params"]
        device = self.settings["device"] if torch.cuda.is_available() else "cpu"
        try:
            self.model, tokenizer = load_model(
                path, dtype=self.settings["dtype"] if device != "cpu" else "float32", device=device
            )
            self.renderer = Renderer(tokenizer)
        except (ValueError, OSError) as e:
            raise UserError(f"the model {model} could not be loaded: {str(e).strip().splitlines()[0]}") from e
        self.envs = {e["piece"]: bind("env", e)() for e in self.settings["envs"]}
        self.tools = tools.bound(
            None if self.alone else knowledge.load(passages, **EvaluationSampling(**self.settings["sampling"]).tool()),
            self.envs.values(),
        )
        self.sampling = Sampling(temperature=temperature, max_tokens=self.settings["sampling"]["max_turn_tokens"])
        self.seed, self.asked = seed, 0
        self.accounts: list[Any] = []
        way = way_of(self.settings["generation"], model, self.model, self.renderer, Path(path))
        self.sampler: Any = TorchSampler(model=self.model, end_id=self.renderer.end_id)
        if way is not None:
            self.sampler = way.sampler(self.model, self.renderer)
        if decoder:
            self.sampler = decoder_of(
                root, self.settings, decoder, self.sampler, self.renderer, forward_tokens=tokens, device=device
            )
            self.sampler.hear = self.accounts.append
        questions = root / "artifacts" / "questions" / "problems.parquet"
        self.known = {p.question: p for p in tables.read(questions, Problem)} if questions.exists() else {}

    def held_out(self) -> Iterator[str]:
        """Questions of the split test, in a fixed shuffled order; none if the stage questions has not run."""
        yield from sorted(
            (q for q, p in self.known.items() if p.split == "test"), key=lambda q: digest("chat", self.seed, q)
        )

    def ask(self, question: str, speak: Said) -> Ending:
        """Plays one question; `said` is called with every turn of the model and of the tool as it is made."""
        known = self.known.get(question)
        problem = known or Problem.make(
            prompt=question,
            answer="?",
            verifier="exact",
            env="single" if self.alone else "search",
            family="chat",
            split="test",
        )
        self.asked += 1
        player = self._player(lambda env: _Aloud(env, speak))
        try:
            rollout = player.play([problem], 1, self.seed, "chat", self.asked)[0].rollouts[0]
        except ValueError as e:
            raise UserError(str(e)) from e
        ended = outcome(rollout)
        if rollout.segments[-1].stop == "length":  # the environment never saw this turn
            speak(rollout.info["messages"][-1])
        answered = known is None and ended in ("right", "wrong", "unscorable", *(["malformed"] if self.alone else []))
        return Ending("answered" if answered else ended, known.answer if known else "", int(rollout.info["calls"]))

    def play(self, problems: Sequence[Problem], samples: int) -> list[Group]:
        """Plays each question `samples` times without reporting turns. Raises UserError for a question that is too long
        for the model's conversations."""
        try:
            return self._player(lambda env: env).play(problems, samples, self.seed, "measure")
        except ValueError as e:
            raise UserError(str(e)) from e

    def _player(self, around: Callable[[Any], Any]) -> Player:
        return Player(
            sampler=self.sampler,
            renderer=self.renderer,
            tools=self.tools,
            envs={name: around(env) for name, env in self.envs.items()},
            sampling=self.sampling,
            max_tokens=self.settings["sampling"]["max_tokens"],
        )
