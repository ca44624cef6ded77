"""The matrix products of a model: every way gives the same numbers, the choice is made once and kept."""

from __future__ import annotations

import json
import math

import pytest
import torch

from training.model import products


@pytest.fixture
def onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "chosen", lambda: dict.fromkeys(products.KINDS, "oneDNN"))


def tensors(n: int = 65, k: int = 520, m: int = 777, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn(*s).to(dtype) for s in ((n, k), (m, k), (n, m), (n, m), (m,), (n, k))]


@pytest.mark.parametrize("way", ["MKL", "oneDNN"])
def test_each_way_gives_the_products(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    monkeypatch.setattr(products, "chosen", lambda: dict.fromkeys(products.KINDS, way))
    x, w, g, add, bias, back = tensors()
    assert w.numel() >= products.LEAST
    exact = [t.double() for t in (x, w, g, add, bias, back)]
    X, W, G, A, B, C = exact
    products_found = {
        "forward": (products.forward(x, w), X @ W.T),
        "forward of a bias": (products.forward(x, w, bias), X @ W.T + B),
        "forward of a residual": (products.forward(x, w, add=add), X @ W.T + A),
        "input gradient": (products.input_gradient(g, w), G @ W),
        "input gradient and more": (products.input_gradient(g, w, add=back), G @ W + C),
        "weight gradient": (products.weight_gradient(g, x), G.T @ X),
    }
    for beta in (0, 1):
        to = torch.full_like(w, math.nan) if beta == 0 else w.clone()
        products.add_weight_gradient(to, g, x, beta=beta)
        products_found[f"added, {beta}"] = (to, G.T @ X + (W if beta else 0))
    for name, (got, want) in products_found.items():
        assert got.dtype == torch.float32, name
        assert float((got - want).abs().max() / want.abs().max()) < 1e-6, name


def test_a_small_weight_goes_to_torch_whatever_was_chosen(onednn: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> torch.Tensor:
        raise AssertionError("a small product went to oneDNN")

    monkeypatch.setattr(products, "_by_onednn", never)
    x, w, g = torch.randn(65, 128), torch.randn(1024, 128), torch.randn(65, 1024)
    assert torch.equal(products.forward(x, w), x @ w.T)
    assert torch.equal(products.input_gradient(g, w), g @ w)
    assert torch.equal(products.weight_gradient(g, x), g.T @ x)
    with pytest.raises(AssertionError):
        products.forward(torch.randn(65, 512), torch.randn(1024, 512))


def test_bfloat16_weights_take_and_give_float32() -> None:
    x, w, g, add, _, _ = tensors()
    half = w.bfloat16()
    got = products.forward(x, half, add=add)
    want = x.bfloat16().double() @ half.double().T + add.double()
    assert got.dtype == torch.float32
    assert float((got - want).abs().max() / want.abs().max()) < 2**-8
    assert products.input_gradient(g, half).dtype == torch.float32
    assert products.weight_gradient(g, x, torch.bfloat16).dtype == torch.bfloat16


def test_the_choice_is_measured_once_and_kept(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    slow = {"MKL": 2.0, "oneDNN": 1.0}
    calls = []

    def measure() -> dict[str, dict[str, float]]:
        calls.append(1)
        return {"forward": slow, "input gradient": {"MKL": 1.0, "oneDNN": 1.0}, "weight gradient": slow}

    monkeypatch.setattr(products, "measure", measure)
    monkeypatch.setattr(products, "user_cache_path", lambda name: tmp_path / name)
    monkeypatch.setattr(products, "_off", False)
    want = {"forward": "oneDNN", "input gradient": "MKL", "weight gradient": "oneDNN"}
    products._measured.cache_clear()
    assert products.chosen() == want
    products._measured.cache_clear()  # as another process
    assert products.chosen() == want and calls == [1]
    (path,) = (tmp_path / "espalier").glob("products-*.json")
    told = json.loads(path.read_text())
    told["seconds"]["forward"] = {"MKL": 1.0, "oneDNN": 2.0}
    path.write_text(json.dumps(told))
    products._measured.cache_clear()
    assert products.chosen()["forward"] == "MKL"  # what is kept counts, and not a second measurement
    path.write_text("{")
    products._measured.cache_clear()
    assert products.chosen() == want and calls == [1, 1]
    products._measured.cache_clear()


def test_a_measurement_names_every_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "_TRIED", (8, 16, 32))
    measured = products.measure()
    assert measured.keys() == set(products.KINDS)
    assert all(set(ways) == {"MKL", "oneDNN"} and min(ways.values()) >= 0 for ways in measured.values())
