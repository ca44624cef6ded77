"""GRPO from Python: a model learns to count, rewarded by a program that checks its answers. CPU, about 15 seconds.

    python examples/grpo.py

In TRL's words: `Problem` is a row of the dataset, `Player` generates the completions and calls the reward function (here
the verifier `exact`), `compose` builds the trainer, `run` is `trainer.train()`.
"""

import random

import torch

from synth.types import Message, Problem, Sampling
from training.env.single import single
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

PROBLEMS = [
    Problem.make(prompt=f"What follows {n}?", answer=str(n + 1), verifier="exact", family="counting", split="train")
    for n in range(8)
]


def starting_model(seed: int):
    """A model of 50,000 weights that knows the format, and is right less than half of the time. With a
    real model, call `training.model.model.load_model("Qwen/Qwen3-0.6B")` instead, which gives the same pair."""
    tokenizer = train_tokenizer([p.question + f"<answer>{p.answer}</answer>" for p in PROBLEMS] * 20, vocab_size=300)
    sizes = dict(hidden=32, layers=2, heads=4, kv_heads=2, intermediate=64, max_length=64, init_range=0.3)
    model = new_model(tokenizer, seed=seed, **sizes)
    learner, rng = Learner(model, Optim(lr=1e-2, steps=60)), random.Random(seed)
    for _ in range(60):  # supervised fine-tuning on answers of which half are wrong
        rows = []
        for p in PROBLEMS:
            answer = int(p.answer) if rng.random() < 0.4 else rng.randrange(1, 9)
            reply = Message(role="assistant", content=f"<answer>{answer}</answer>")
            rows.append(demonstration_row(Renderer(tokenizer), [*p.prompt, reply], context_weight=0.0))
        learner.step(weighted(rows, "cpu"), nll)
    return model, tokenizer


def main(steps: int = 40, seed: int = 0) -> list[float]:
    """Train for `steps` steps. Returns the mean reward of each."""
    torch.manual_seed(seed)
    model, tokenizer = starting_model(seed)
    renderer = Renderer(tokenizer)
    player = Player(  # samples completions, and scores them with the problem's verifier
        sampler=TorchSampler(model, renderer.end_id),
        renderer=renderer,
        envs={"single": single()},
        sampling=Sampling(temperature=1.0, max_tokens=8),
        max_tokens=48,
    )
    training = compose(
        policy=model,
        player=player,
        problems=PROBLEMS,
        steps=steps,
        prompts_per_step=8,
        samples_per_prompt=16,  # TRL: num_generations
        optim=Optim(lr=3e-3, steps=steps, warmup=0, decay="constant", weight_decay=0.0),
        curriculum=uniform,
        advantage=grpo,
        ratio=token,
        policy_loss=clip,
        seed=seed,
    )
    rewards = []
    for _, step, metrics in run([training.round], training.roles):
        rewards.append(metrics["reward"])
        if step % 5 == 0 or step == steps - 1:
            print(f"step {step:3}  reward {metrics['reward']:.3f}  entropy {metrics.get('entropy', 0.0):.3f}")
    return rewards


if __name__ == "__main__":
    main()
