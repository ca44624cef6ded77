"""What every preference loss promises, for every file of training/preference/loss: the shape, no infinity, which way it
pulls, columns, units."""

import importlib
import inspect
import typing
from functools import partial
from pathlib import Path

import pytest
import torch

from training.preference.objective import columns_of

INF = float("inf")
COLUMNS = {"margin": 0.5, "weight": 0.5, "other": 0.0, "baseline": 0.1, "history": 0.0, "reliability": 0.9}


def every():
    for path in sorted((Path(__file__).parents[3] / "training/preference/loss").glob("[!_]*.py")):
        module = importlib.import_module(f"training.preference.loss.{path.stem}")
        function = getattr(module, path.stem)
        literal = {k: v for k, v in typing.get_type_hints(function).items() if typing.get_origin(v) is typing.Literal}
        for knobs in [{}] + [{k: v} for k, hint in literal.items() for v in typing.get_args(hint)]:
            label = path.stem + "".join(f"[{k}={v}]" for k, v in knobs.items())
            yield pytest.param(partial(function, **knobs), module, id=label)


LOSSES = list(every())


def of(loss, chosen, rejected, ref_chosen, ref_rejected, n, **columns):
    given = {name: torch.full_like(chosen, columns.get(name, COLUMNS[name])) for name in columns_of(loss)}
    return loss(chosen, rejected, ref_chosen, ref_rejected, n, n, **given)


@pytest.mark.parametrize(("loss", "module"), LOSSES)
def test_it_falls_as_the_margin_grows_and_stays_finite(loss, module):
    """Four cases, each repeated so that the pairs that the loss sees at once are of one case: equal, apart, impossible,
    far apart."""
    k = max(1, getattr(module, "ROWS_PER_UNIT", 1))
    n = torch.tensor([3.0, 3.0, 5.0, 2.0]).repeat_interleave(k).view(4, k)
    chosen = torch.tensor([-5.0, -1.0, -INF, 3e4]).repeat_interleave(k).view(4, k).requires_grad_()
    rejected = torch.tensor([-5.0, -4.0, -2.0, -3e4]).repeat_interleave(k).view(4, k).requires_grad_()
    reference = torch.tensor([-5.0, -2.0, -2.0, -1.0]).repeat_interleave(k).view(4, k)
    values = torch.stack([of(loss, *case) for case in zip(chosen, rejected, reference, reference, n, strict=True)])
    assert values.shape == (4, k) and torch.isfinite(values).all()
    assert (values[2] == 0).all(), "a pair with a non-finite log-prob counts nothing"
    gradients = torch.autograd.grad(values[:3].sum(), [chosen, rejected], allow_unused=True)
    better, worse = (torch.zeros(4) if g is None else g.sum(1) for g in gradients)
    assert torch.isfinite(better).all() and torch.isfinite(worse).all() and better[2] == worse[2] == 0
    text = " ".join(module.__doc__.split())
    if "slope turns round at no margin" in text:
        assert better[0] > worse[0]
        return
    if "Both answers are learned" in text:
        assert better[0] < 0 and worse[0] < 0
        return
    assert better[0] < worse[0], "at no margin, descent must widen it"
    assert worse[0] == 0 if "The rejected answer is not read" in text else worse[0] > 0, (
        "at no margin, descent must lower the rejected"
    )
    assert "may lower the chosen" in text or better[0] < 0, (
        "say in the docstring if descent may lower the chosen at no margin"
    )


@pytest.mark.parametrize(("loss", "module"), [p for p in LOSSES if not p.values[0].keywords])
def test_what_it_needs_is_what_it_reads(loss, module):
    """A loss that names no reference may not read one, and the other way round (its other passes are columns)."""
    k = 2 * max(1, getattr(module, "ROWS_PER_UNIT", 1))
    torch.manual_seed(0)
    sides = [-10 * torch.rand(k) - 1 for _ in range(4)]
    n = torch.full((k,), 7.0)
    moved = [s - 1.5 * torch.rand(k) for s in sides]
    same = torch.equal(of(loss, *sides, n), of(loss, *sides[:2], *moved[2:], n))
    assert same == ("reference" not in getattr(module, "NEEDS", set()))
    assert getattr(module, "ROWS_PER_UNIT", 1) in range(5) and isinstance(getattr(module, "UNIT", "pair"), str)


@pytest.mark.parametrize(("loss", "module"), LOSSES)
def test_pairs_that_it_does_not_see_at_once_do_not_matter(loss, module):
    k = getattr(module, "ROWS_PER_UNIT", 1)
    torch.manual_seed(1)
    sides = [-10 * torch.rand(12) - 1 for _ in range(4)]
    n = torch.randint(2, 9, (12,)).float()
    whole = of(loss, *sides, n)
    if k:
        parts = torch.cat([of(loss, *(s[i : i + k] for s in sides), n[i : i + k]) for i in range(0, 12, k)])
        torch.testing.assert_close(whole, parts, rtol=1e-6, atol=1e-6)
    else:
        order = torch.randperm(12)
        torch.testing.assert_close(of(loss, *(s[order] for s in sides), n[order]).sum(), whole.sum())


@pytest.mark.parametrize(("loss", "module"), LOSSES)
def test_every_column_is_read(loss, module):
    torch.manual_seed(2)
    sides = [-10 * torch.rand(12) - 1 for _ in range(4)]
    n = torch.full((12,), 5.0)
    plain = of(loss, *sides, n)
    for name in columns_of(loss):
        column = torch.linspace(0.1, 0.7, 12)
        given = {m: column if m == name else torch.full((12,), COLUMNS[m]) for m in columns_of(loss)}
        assert not torch.equal(plain, loss(*sides, n, n, **given)), f"the column {name} changes nothing"


def test_a_knob_that_is_no_number_of_the_method_is_refused():
    from training.preference.loss import aot, apo, f_dpo, modpo, p3o, robust, rpo_em

    x = torch.zeros(2)
    for call in (
        lambda: aot.aot(x, x, x, x, x, x, coupling="none"),
        lambda: apo.apo(x, x, x, x, x, x, anchor="none"),
        lambda: f_dpo.f_dpo(x, x, x, x, x, x, divergence="none"),
        lambda: modpo.modpo(x, x, x, x, x, x, other=x, weight=0.0),
        lambda: p3o.p3o(x, x, x, x, x, x, margin=x, version="none"),
        lambda: robust.robust(x, x, x, x, x, x, flip_rate=0.5),
        lambda: rpo_em.rpo_em(x, x, x, x, x, x, reliability=x, base="none"),
    ):
        with pytest.raises(ValueError, match="choose|must be"):
            call()


def test_signatures_have_columns_before_knobs():
    for param in LOSSES:
        kinds = [
            p.default is p.empty
            for p in inspect.signature(param.values[0].func).parameters.values()
            if p.kind is p.KEYWORD_ONLY
        ]
        assert kinds == sorted(kinds, reverse=True)


def test_the_page_of_losses_is_the_generated_one():
    from docs.generators import losses

    text = losses.PAGE.read_text(encoding="utf-8")
    assert losses.generated(text) == text, "run `make losses`"
    assert all(f"(../training/preference/loss/{p.values[1].__name__.rpartition('.')[2]}.py)" in text for p in LOSSES)
