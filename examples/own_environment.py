"""An environment of your own, of two turns: who answers wrong is told so and may try again. CPU, about 15 seconds.

    python examples/own_environment.py

An environment is a class with two methods. `start` gives the state of an episode and the messages that the model sees
first; `step` reads one turn of the model and says what the model is told next, whether the episode is over, and its
score. What the environment says is never trained on. (In TRL: `environment_factory` of GRPOTrainer.) In a project of
your own the class goes to pieces/env/second_chance.py, behind a function of that name, and a recipe names it.
"""

import random

from synth.types import Message, Problem, Sampling, Scored
from training.learner.learner import Learner, Optim, nll
from training.learner.loop import run
from training.learner.rows import demonstration_row, weighted
from training.model.model import new_model, train_tokenizer
from training.model.render import Renderer
from training.rl.advantage.grpo import grpo
from training.rl.compose import compose
from training.rl.curriculum.uniform import uniform
from training.rl.policy_loss.clip import clip
from training.rl.ratio.token import token
from training.rollout.play import Player
from training.rollout.torch_sampler import TorchSampler


class SecondChance:
    """A right first answer is worth 1, a right second one 1/2."""

    def start(self, problem, tools):
        return {"right": problem.answer, "answers": 0}, list(problem.prompt)

    def step(self, state, text):
        state["answers"] += 1
        if text.strip() == state["right"]:
            return [], True, Scored(value=1 / state["answers"], parts={"answers": state["answers"]})
        if state["answers"] == 2:
            return [], True, Scored(value=0.0, parts={"answers": 2})
        return [Message(role="user", content="No. Try again.")], False, None


PROBLEMS = [
    Problem.make(prompt=f"After {n}?", answer=str(n + 1), verifier="exact", env="chance", family="count", split="train")
    for n in range(8)
]


def starting_model(seed: int):
    """A model of 50,000 weights that answers with a digit, which is right less than half of the time. With a real
    model, call `training.model.model.load_model("Qwen/Qwen3-0.6B")` instead, which gives the same pair."""
    tokenizer = train_tokenizer([f"{p.question} {p.answer} No. Try again." for p in PROBLEMS] * 20, vocab_size=300)
    sizes = dict(hidden=32, layers=2, heads=4, kv_heads=2, intermediate=64, max_length=96, init_range=0.3)
    model = new_model(tokenizer, seed=seed, **sizes)
    learner, rng = Learner(model, Optim(lr=1e-2, steps=60)), random.Random(seed)
    for _ in range(60):  # supervised fine-tuning on two answers, of which half are wrong
        rows = []
        for p in PROBLEMS:
            guesses = [p.answer if rng.random() < 0.4 else str(rng.randint(1, 8)) for _ in range(2)]
            first, second = (Message(role="assistant", content=text) for text in guesses)
            messages = [*p.prompt, first, Message(role="user", content="No. Try again."), second]
            rows.append(demonstration_row(Renderer(tokenizer), messages, context_weight=0.0))
        learner.step(weighted(rows, "cpu"), nll)
    return model, tokenizer


def main(steps: int = 40, seed: int = 0) -> list[float]:
    """Train for `steps` steps. Returns the mean reward of each."""
    model, tokenizer = starting_model(seed)
    renderer = Renderer(tokenizer)
    player = Player(
        sampler=TorchSampler(model, renderer.end_id),
        renderer=renderer,
        envs={"chance": SecondChance()},
        sampling=Sampling(temperature=1.0, max_tokens=4),
        max_tokens=96,
    )
    pieces = dict(curriculum=uniform, advantage=grpo, ratio=token, policy_loss=clip)
    sizes = dict(steps=steps, prompts_per_step=8, samples_per_prompt=16, seed=seed)
    optim = Optim(lr=3e-3, steps=steps, warmup=0, decay="constant", weight_decay=0.0)
    training = compose(policy=model, player=player, problems=PROBLEMS, optim=optim, **sizes, **pieces)
    rewards = []
    for _, step, metrics in run([training.round], training.roles):
        rewards.append(metrics["reward"])
        if step % 5 == 0 or step == steps - 1:
            print(f"step {step:3}  reward {metrics['reward']:.3f}  entropy {metrics.get('entropy', 0.0):.3f}")
    return rewards


if __name__ == "__main__":
    main()
