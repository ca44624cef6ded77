"""Parity with TRL, values and gradients: the loss inside each of its trainers, driven with given log-probs, and one
whole trainer.

A bare trainer is made without its __init__ and given what its loss reads; in the place of the model stands a function
that returns the log-probs of the test. So what is compared is TRL's own code, with all its scaling, smoothing and
sorting.
"""

import copy
import inspect
import os
import re
from collections import defaultdict
from functools import partial
from importlib.util import find_spec
from types import SimpleNamespace

import pytest
import torch

import tiny
from transformers import AutoModelForCausalLM
from trl_classes import trl_class

from training.learner.learner import token_stats
from training.learner.pack import Row, pack
from training.preference.loss.aot import aot
from training.preference.loss.apo import apo
from training.preference.loss.bco import bco
from training.preference.loss.bradley_terry import bradley_terry
from training.preference.loss.bradley_terry_margins import bradley_terry_margins
from training.preference.loss.cpo import cpo
from training.preference.loss.discopop import discopop
from training.preference.loss.dpo import dpo
from training.preference.loss.dpo_norm import dpo_norm
from training.preference.loss.exo import exo
from training.preference.loss.f_dpo import f_dpo
from training.preference.loss.hinge import hinge
from training.preference.loss.ipo import ipo
from training.preference.loss.kto import kto
from training.preference.loss.nca import nca
from training.preference.loss.orpo import orpo
from training.preference.loss.robust import robust
from training.preference.loss.rpo_sft import rpo_sft
from training.preference.loss.sft import sft
from training.preference.loss.simpo import simpo
from training.preference.loss.sppo import sppo
from training.preference.objective import PairObjective

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
pytestmark = pytest.mark.skipif(find_spec("trl") is None, reason="TRL is not installed: `pip install -e '.[test]'`")

PAIRS, PROMPT, WIDTH = 6, 3, 9  # answers have 2 to 6 tokens
SAME = lambda x: x  # noqa: E731
ACCELERATOR = SimpleNamespace(device=torch.device("cpu"), gather=SAME, gather_for_metrics=SAME)


def bare(trainer, **attributes):
    bare_trainer = object.__new__(trl_class(trainer))
    vars(bare_trainer).update(
        accelerator=ACCELERATOR,
        model=SimpleNamespace(training=True),
        aux_loss_enabled=False,
        _total_train_tokens=0,
        _tp_size=1,
        _metrics={"train": defaultdict(list)},
        **attributes,
    )
    return bare_trainer


class Case:
    """Per-token log-probs of a policy (with gradient) and of a reference for PAIRS chosen rows, then PAIRS rejected
    ones."""

    def __init__(self, seed=0, equal=False, dtype=torch.float64):
        g = torch.Generator().manual_seed(seed)
        self.n = torch.full((2 * PAIRS,), 4) if equal else torch.randint(2, 7, (2 * PAIRS,), generator=g)
        column = torch.arange(WIDTH)
        self.mask = ((column >= PROMPT) & (column < PROMPT + self.n[:, None])).long()
        shape = (2 * PAIRS, WIDTH - 1)
        draw = lambda: -3 * torch.rand(shape, generator=g, dtype=dtype) - 0.05  # noqa: E731
        self.leaf, reference = draw().requires_grad_(), draw()
        on = self.mask[:, 1:]
        self.per_token = self.leaf * on
        self.sums, self.ref = self.per_token.sum(1), (reference * on).sum(1)

    def ours(self, loss, reduce=torch.mean, **columns):
        sides = (*self.sums.chunk(2), *self.ref.chunk(2), *self.n.to(self.sums.dtype).chunk(2))
        value = reduce(loss(*sides, **columns))
        return value, torch.autograd.grad(value, self.leaf, retain_graph=True)[0]

    def model(self, **_):
        zeros = torch.zeros_like(self.per_token)
        return SimpleNamespace(log_probs=self.per_token, entropy=zeros, mean_logits=zeros, is_top1=zeros.bool())

    @property
    def inputs(self):
        (chosen, rejected), ids = self.ref.chunk(2), torch.ones_like(self.mask)
        given = {"input_ids": ids, "attention_mask": ids, "completion_mask": self.mask}
        return given | {"ref_chosen_logps": chosen, "ref_rejected_logps": rejected}

    def theirs(self, loss):
        return loss, torch.autograd.grad(loss, self.leaf, retain_graph=True)[0]


def agree(ours, theirs, tolerance=2e-6):
    """Values and gradients; the slack is that of constants that TRL keeps in float32."""
    torch.testing.assert_close(ours[0].detach(), theirs[0].detach().to(ours[0]), rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(ours[1], theirs[1], rtol=tolerance, atol=tolerance)
    assert float(ours[1].abs().max()) > 1e-6, "the gradient is not all zero"


# TRL's name -> ours, with settings of theirs beside. Every loss type that DPOTrainer has is here: a test counts them.
DPO = {
    "sigmoid": (partial(dpo, beta=0.3), {}),
    "hinge": (partial(hinge, beta=0.3), {}),
    "ipo": (partial(ipo, beta=0.3, per_token=True), {}),
    "exo_pair": (partial(exo, beta=0.3, label_smoothing=0.01), {"label_smoothing": 0.01}),
    "nca_pair": (partial(nca, beta=0.3), {}),
    "robust": (partial(robust, beta=0.3, flip_rate=0.15), {"label_smoothing": 0.15}),
    "bco_pair": (partial(bco, beta=0.3), {}),
    "sppo_hard": (partial(sppo, beta=0.3), {}),
    "aot": (partial(aot, beta=0.3, label_smoothing=0.1), {"label_smoothing": 0.1}),
    "aot_unpaired": (partial(aot, beta=0.3, label_smoothing=0.1, coupling="unpaired"), {"label_smoothing": 0.1}),
    "apo_zero": (partial(apo, beta=0.3, anchor="zero"), {}),
    "apo_down": (partial(apo, beta=0.3, anchor="down"), {}),
    "discopop": (partial(discopop, beta=0.3, tau=0.2), {"args": SimpleNamespace(discopop_tau=0.2)}),
    "sft": (sft, {}),
    "sigmoid_norm": (partial(dpo_norm, beta=0.3), {}),
}


def dpo_trainer(*types, weights=None, **other):
    settings = {
        "beta": 0.3,
        "label_smoothing": 0.0,
        "f_divergence_type": "reverse_kl",
        "f_alpha_divergence_coef": 0.5,
        "ld_alpha": None,
        "use_weighting": False,
        "precompute_ref_logps": True,
    } | other
    return bare("DPOTrainer", loss_types=list(types), loss_weights=weights or [1.0] * len(types), **settings)


def test_no_loss_of_the_dpo_trainer_is_left_out():
    from trl import DPOConfig

    help_text = DPOConfig.__dataclass_fields__["loss_type"].metadata["help"]
    assert {
        word.strip("`'") for word in help_text.replace(".", " ").replace(",", " ").split() if word.startswith("`'")
    } == set(DPO)


def test_what_the_documents_say_of_dpo_trainer_is_what_is_tested():
    """docs/losses.md takes a loss's counterpart from its docstring: each of DPOTrainer's is named there, at the piece
    that is tested."""
    for name, (loss, _) in DPO.items():
        (line,) = re.findall(r"^TRL: .*$", inspect.getmodule(getattr(loss, "func", loss)).__doc__, re.MULTILINE)
        assert f"`{name}`" in line.replace("DPOTrainer ", "")


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("name", DPO)
def test_dpo_trainer(name, seed):
    loss, settings = DPO[name]
    # TRL's sft is the mean over all tokens, ours over answers: the same at equal lengths.
    case = Case(seed, equal=name == "sft")
    if name in ("ipo", "sigmoid_norm"):
        case.n = case.mask.sum(1)
    agree(case.ours(loss), case.theirs(dpo_trainer(name, **settings)._compute_loss(case.model, case.inputs, False)))


def test_aot_has_a_gradient_at_the_pair_that_the_difference_is_of():
    case = Case(4)
    values = aot(*case.sums.chunk(2), *case.ref.chunk(2), *case.n.chunk(2))
    for i in range(PAIRS):
        (g,) = torch.autograd.grad(values[i], case.leaf, retain_graph=True)
        rows = g.abs().sum(1).nonzero().flatten().tolist()
        assert rows == [i, PAIRS + i], "paired: the value of a pair is a function of that pair's own two answers"


@pytest.mark.parametrize("divergence", ["reverse_kl", "forward_kl", "js", "alpha"])
def test_divergences(divergence):
    case = Case(3, dtype=torch.float32)
    theirs = {"js": "js_divergence", "alpha": "alpha_divergence"}.get(divergence, divergence)
    trainer = dpo_trainer("sigmoid", f_divergence_type=theirs, f_alpha_divergence_coef=0.7)
    loss = trainer._compute_loss(case.model, case.inputs, False)
    agree(case.ours(partial(f_dpo, beta=0.3, divergence=divergence, alpha=0.7)), case.theirs(loss), 1e-5)


def test_dpo_with_a_supervised_term():
    case = Case(5, equal=True)
    loss = dpo_trainer("sigmoid", "sft", weights=[1.0, 0.05])._compute_loss(case.model, case.inputs, False)
    agree(case.ours(partial(rpo_sft, beta=0.3, sft_coef=0.05, per_token=True)), case.theirs(loss))


@pytest.mark.parametrize("name", ["kto", "apo_zero_unpaired"])
@pytest.mark.parametrize("shift", [1.0, -8.0])  # with -8 the estimate of the KL is negative, and counts as 0
def test_kto_trainer(name, shift):
    case, other = Case(6), Case(7)
    other.sums = other.ref + shift
    labels = torch.tensor([True] * PAIRS + [False] * PAIRS)

    def model(**given):
        chosen = other if int(given["input_ids"][0, 0]) == 2 else case
        policy = case.model()
        if chosen is other:
            policy.log_probs = other.sums[:, None].expand(-1, WIDTH - 1) / (WIDTH - 1)
        return policy

    trainer = bare(
        "KTOTrainer",
        loss_type=name,
        beta=0.3,
        desirable_weight=1.3,
        undesirable_weight=0.7,
        calculate_KL=name == "kto",
        precompute_ref_logps=True,
    )
    ids = torch.ones_like(case.mask)
    inputs = {
        "input_ids": ids,
        "attention_mask": ids,
        "completion_mask": case.mask,
        "label": labels,
        "ref_logps": case.ref,
        "KL_input_ids": ids * 2,
        "KL_attention_mask": ids,
        "KL_completion_mask": case.mask,
        "ref_KL_logps": other.ref,
    }
    z = max(shift, 0.0) if name == "kto" else 0.0
    ours = case.ours(
        partial(kto, beta=0.3, desirable=1.3, undesirable=0.7), baseline=torch.full((PAIRS,), z, dtype=torch.float64)
    )
    agree(ours, case.theirs(trainer._compute_loss(model, inputs, False)))


def cpo_trainer(kind, **other):
    return bare(
        "CPOTrainer", loss_type=kind, **{"beta": 0.3, "label_smoothing": 0.0, "alpha": 0.0, "simpo_gamma": 0.5} | other
    )


@pytest.mark.parametrize("kind", ["sigmoid", "hinge", "ipo", "simpo", "smoothed"])
def test_cpo_trainer(kind):
    """Its four losses without a reference; and label smoothing, which DPOTrainer no longer has: there log-ratios stand
    for log-probs."""
    case = Case(8)
    nothing = torch.zeros_like(case.ref)
    if kind == "simpo":
        means = case.sums / case.n
        agree(
            case.ours(partial(simpo, beta=0.3, gamma=0.5)),
            case.theirs(cpo_trainer(kind).cpo_loss(*means.chunk(2))[0].mean()),
        )
    elif kind == "smoothed":
        ratios = case.sums - case.ref
        theirs = cpo_trainer("sigmoid", label_smoothing=0.2).cpo_loss(*ratios.chunk(2))[0].mean()
        agree(case.ours(partial(dpo, beta=0.3, label_smoothing=0.2)), case.theirs(theirs))
    else:
        case.ref = nothing
        ours = {"sigmoid": partial(cpo, beta=0.3), "hinge": partial(hinge, beta=0.3), "ipo": partial(ipo, beta=0.3)}[
            kind
        ]
        agree(case.ours(ours), case.theirs(cpo_trainer(kind).cpo_loss(*case.sums.chunk(2))[0].mean()))


def test_orpo_trainer():
    case = Case(9, equal=True)
    means = case.sums / case.n
    losses = bare("ORPOTrainer", beta=0.25).odds_ratio_loss(*means.chunk(2))[0]
    nll = -case.per_token[:PAIRS].sum() / case.n[:PAIRS].sum()
    agree(case.ours(partial(orpo, lam=0.25)), case.theirs(nll - losses.mean()), 1e-5)


@pytest.mark.parametrize("margins", [False, True])
def test_reward_trainer(margins):
    leaf = torch.linspace(-2, 3, 2 * PAIRS, dtype=torch.float64)[
        torch.randperm(2 * PAIRS, generator=torch.Generator().manual_seed(1))
    ]
    leaf = leaf.requires_grad_()
    margin = torch.linspace(0, 1, PAIRS, dtype=torch.float64)
    trainer = bare("RewardTrainer", args=SimpleNamespace(center_rewards_coefficient=0.02))
    inputs = {"attention_mask": torch.ones(2 * PAIRS, 3)} | ({"margin": margin} if margins else {})
    theirs = trainer.compute_loss(lambda **_: SimpleNamespace(logits=leaf[:, None]), inputs)
    none = torch.zeros(PAIRS, dtype=torch.float64)
    loss = partial(bradley_terry_margins, margin=margin) if margins else bradley_terry
    ours = loss(*leaf.chunk(2), none, none, none + 1, none + 1, centre=0.02).mean()
    grad = lambda x: (x, torch.autograd.grad(x, leaf)[0])  # noqa: E731
    agree(grad(ours), grad(theirs), 1e-9)


# --- a whole trainer: its data, its masks, its forward pass, its reference --------------------------------------------

TEXTS = [
    ("What is the capital of Norvia ?", "<answer>Zelton</answer>", "<search>capital of Norvia</search>"),
    ("Solve 12x + 34 = 58.", "<answer>2</answer>", "<answer>24 Zelton</answer>"),
    ("Sort: 9 8 7.", "<answer>7 8 9</answer>", "<answer>9</answer>"),
]


@pytest.mark.parametrize("name", ["sigmoid", "ipo", "sigmoid_norm", "apo_down"])
def test_a_whole_dpo_trainer_has_our_loss_and_our_gradients(name, tmp_path):
    from datasets import Dataset
    from trl import DPOConfig

    ours, other = tiny.build(seed=0, init_range=0.1), tiny.build(seed=1, init_range=0.1)
    theirs, reference = (
        AutoModelForCausalLM.from_config(copy.deepcopy(m.config), attn_implementation="eager") for m in (ours, other)
    )
    theirs.load_state_dict(ours.state_dict())
    reference.load_state_dict(other.state_dict())
    data = Dataset.from_list([dict(zip(("prompt", "chosen", "rejected"), t, strict=True)) for t in TEXTS])
    args = DPOConfig(
        output_dir=str(tmp_path),
        loss_type=name,
        beta=0.3,
        report_to=[],
        use_cpu=True,
        per_device_train_batch_size=3,
        bf16=False,
        gradient_checkpointing=False,
        max_length=None,
        disable_tqdm=True,
    )
    trainer = trl_class("DPOTrainer")(
        theirs, reference, args=args, train_dataset=data, processing_class=tiny.tokenizer()
    )
    inputs = next(iter(trainer.get_train_dataloader()))
    theirs.eval()
    loss = trainer.compute_loss(theirs, inputs)
    loss.backward()

    rows = [
        Row(ids=i[a.bool()].numpy(), trainable=c[a.bool()].bool().numpy(), group=r % 3)
        for r, (i, a, c) in enumerate(
            zip(inputs["input_ids"], inputs["attention_mask"], inputs["completion_mask"], strict=True)
        )
    ]
    batch = pack([rows[i + side * 3] for i in range(3) for side in (0, 1)])
    objective = PairObjective(loss=DPO[name][0], reference=other)
    objective.prepare(batch)
    (terms,) = objective(token_stats(ours, batch), batch)
    mine = terms.values.sum() / batch.totals["pairs"]
    mine.backward()
    assert float(mine.detach()) == pytest.approx(float(loss.detach()), rel=1e-5)
    parameters = dict(theirs.named_parameters())
    for key, p in ours.named_parameters():
        torch.testing.assert_close(
            p.grad, parameters[key].grad, rtol=1e-3, atol=2e-6, msg=lambda m, key=key: f"{key}: {m}"
        )
