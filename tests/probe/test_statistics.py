"""Statistics of attention against loops that know nothing of tensors; the compiled kernel against torch."""

from __future__ import annotations

import ctypes
import dataclasses
import math

import numpy as np
import pytest
import torch
from torch import Tensor

from scansnap.kernels.cpu import attention, library
from scansnap.probe.capture import AttentionCall, AttentionRows
from scansnap.probe.measurement import AttentionCollector, start_transfer
from scansnap.probe.schema import DECILES, STATISTICS
from scansnap.probe.statistics import AttentionSums, StatisticsPlan, compute_sums, plain

B, H, T, M = 2, 3, 17, 5
QUERIES = torch.tensor([0, 1, 4, 9, 16])
LEVELS = ("default", "avx2", "avx512")  # of instruction sets, each includes the ones before


def visible_keys(kind: str) -> Tensor:
    """What a query sees: broadcasts to (B, H, Q, T)."""
    at, query = torch.arange(T), QUERIES[:, None]
    if kind == "by head":  # the last head sees the first key never
        return torch.stack([(at <= query) & (at > query - width) for width in (T, 4, 3)])[None]
    if kind == "by sequence":  # the second is padded on the left, and its first queries see nothing
        return torch.stack([at <= query, (at <= query) & (at > 2)])[:, None]
    return at <= query if kind == "causal" else torch.ones(len(QUERIES), T, dtype=torch.bool)


def a_pass(seed: int = 0, kind: str = "causal", dtype: torch.dtype = torch.float64) -> tuple[AttentionRows, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(M, (B, T), generator=generator)
    logits = 3 * torch.randn(B, H, len(QUERIES), T, dtype=torch.float64, generator=generator)
    visible = visible_keys(kind)
    return AttentionRows(torch.softmax(logits.masked_fill(~visible, -torch.inf), -1).to(dtype), visible), tokens


def known_of(tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Distinctness and decile of each key; the last token is unknown."""
    distinctness = torch.where(tokens < M - 1, tokens.double() / M, torch.nan)
    return distinctness, torch.where(tokens < M - 1, DECILES * tokens // M, -1)


def call_of(rows: AttentionRows, queries: Tensor) -> AttentionCall:
    place = {int(q): i for i, q in enumerate(queries)}

    def some(of: Tensor) -> AttentionRows:
        at = [place[int(q)] for q in of]
        return AttentionRows(rows.p[:, :, at], rows.visible[..., at, :])

    b, h, _, s = rows.p.shape
    return AttentionCall("a", 0, (b, h, s, s), rows.p.device, some)


def gathered(rows: AttentionRows, queries: Tensor, tokens: Tensor, block: int | None = None) -> AttentionSums:
    return compute_sums(
        call_of(rows, queries), StatisticsPlan(queries, torch.tensor([0, 2]), tokens, *known_of(tokens)), block
    )


def by_name(found: AttentionSums) -> dict[str, tuple[Tensor, Tensor]]:
    """Value and baseline (B, H)."""
    named = {name: (found.value[i], found.uniform[i]) for i, name in enumerate(STATISTICS)}
    named |= {f"decile {d}": (found.mass[d], found.uniform_mass[d]) for d in range(DECILES)}
    return named | {"distinctness": (found.distinctness, found.uniform_distinctness)}


def by_hand(p: np.ndarray, keys: list[int], tokens: list[int], query: int) -> dict[str, float]:
    """One row of attention to the keys it may see; what has no key is left out."""
    share, taken, n = 0.0, 0, len(keys)
    for weight in sorted(p, reverse=True):
        if share >= 0.95:
            break
        share, taken = share + weight, taken + 1
    entropy = -sum(x * math.log(x) for x in p if x > 0)
    found = {"entropy": entropy, "entropy_rel": entropy / math.log(n), "support": math.exp(entropy), "top1": max(p),
             "share95": taken / n}  # fmt: skip
    own, following = tokens[query], tokens[query + 1] if query + 1 < len(tokens) else None
    sets = {"sink": [k for k in keys if k == 0], "self": [k for k in keys if k == query],
            "previous": [k for k in keys if k == query - 1],
            "same_token": [k for k in keys if k < query and tokens[k] == own],
            "induction": [k for k in keys if 0 < k <= query and tokens[k - 1] == own],
            "copy": [k for k in keys if k <= query and tokens[k] == following]}  # fmt: skip
    found |= {name: sum(p[k] for k in some) for name, some in sets.items() if some}
    for name in ("same_token", "induction", "copy"):
        found[f"{name}_all"] = found.get(name, 0.0)
    for d in range(DECILES):
        found[f"decile {d}"] = sum(p[k] for k in keys if tokens[k] < M - 1 and DECILES * tokens[k] // M == d)
    known = sum(p[k] for k in keys if tokens[k] < M - 1)
    if known > 0:
        found["distinctness"] = sum(p[k] * tokens[k] / M for k in keys if tokens[k] < M - 1) / known
    return found


@pytest.fixture(params=["torch, float64", "torch, float32", *LEVELS])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> torch.dtype:
    """Each way to compute them on a CPU, by the type it takes."""
    if request.param.startswith("torch"):
        monkeypatch.setattr(attention, "takes", lambda p: False)
        return torch.float64 if request.param.endswith("64") else torch.float32
    path, capability = library.find("attention", request.param), torch.backends.cpu.get_cpu_capability().lower()
    if path is None:
        pytest.skip(f"the kernel was not built for {request.param}")
    if LEVELS.index(request.param) > (LEVELS.index(capability) if capability in LEVELS else 0):
        pytest.skip(f"this processor has no {request.param}")
    build = ctypes.CDLL(str(path))
    monkeypatch.setattr(library, "load", lambda name: build)
    return torch.float32


@pytest.mark.parametrize("block", [1, 1 << 22])
@pytest.mark.parametrize("kind", ["causal", "all", "by head", "by sequence"])
@pytest.mark.parametrize("seed", [0, 1])
def test_all_are_those_of_plain_loops(seed: int, kind: str, block: int, way: torch.dtype) -> None:
    rows, tokens = a_pass(seed, kind, way)
    found = gathered(rows, QUERIES, tokens, block)
    visible = rows.visible.expand(rows.p.shape)
    close = 1e-12 if way == torch.float64 else 2e-6
    for b in range(B):
        for h in range(H):
            each, even = [], []
            for i, query in enumerate(QUERIES.tolist()):
                keys = visible[b, h, i].nonzero()[:, 0].tolist()
                if len(keys) > 1:
                    uniform = np.where(visible[b, h, i], 1 / len(keys), 0)
                    each.append(by_hand(rows.p[b, h, i].double().numpy(), keys, tokens[b].tolist(), query))
                    even.append(by_hand(uniform, keys, tokens[b].tolist(), query))
            assert int(found.n_queries[b, h]) == len(each)
            for name, both in by_name(found).items():
                for known, one in zip((each, even), both, strict=True):
                    values = [row[name] for row in known if name in row]
                    wanted = np.mean(values) if values else math.nan
                    assert float(one[b, h]) == pytest.approx(wanted, rel=close, abs=1e-7 * (close > 1e-9), nan_ok=True)
    torch.testing.assert_close(found.sample.p, torch.where(rows.p.isnan(), 0, rows.p)[:, :, [0, 2]].float())


@pytest.mark.parametrize("kind", ["snapped", "flat", "tied", "with zeros", "with a sink of its own"])
@pytest.mark.parametrize("n_keys", [2, 15, 16, 65, 511])
def test_the_kernel_is_torch(kind: str, n_keys: int, way: torch.dtype) -> None:
    """Rows of every kind of spread: entropy, largest weight and the smallest set, whatever is tied."""
    generator = torch.Generator().manual_seed(n_keys)
    logits = torch.randn(2, 2, 7, n_keys, generator=generator, dtype=torch.float64)
    logits = {"snapped": 60 * logits, "flat": 0 * logits, "tied": logits.round(), "with zeros": logits,
              "with a sink of its own": logits}[kind]  # fmt: skip
    p = logits.softmax(-1)
    if kind == "with zeros":
        p[..., 1::2] = 0  # and what is left adds up to less than 1
    p = 0.3 * p if kind == "with a sink of its own" else p
    entropy, top, needed, _ = plain._of_rows(p.to(way), None)
    for at in np.ndindex(2, 2, 7):
        row = sorted(p.to(way).double()[at].tolist(), reverse=True)
        total = np.cumsum(row)
        assert float(entropy[at]) == pytest.approx(-sum(x * math.log(x) for x in row if x > 0), rel=2e-6, abs=1e-7)
        assert float(top[at]) == row[0]
        fewest, most = (1 + int((total[:-1] < share * total[-1]).sum()) for share in (0.95 - 2e-6, 0.95))
        assert fewest <= int(needed[at]) <= most
        if kind == "flat":  # nothing is left to rounding
            assert int(needed[at]) == math.ceil(n_keys * 0.949999)


def test_a_weight_that_is_no_number_stays_in_its_row(way: torch.dtype) -> None:
    rows, tokens = a_pass(dtype=way)
    p = rows.p.clone()
    p[0, 0, 3, 2] = torch.nan
    found, whole = (gathered(AttentionRows(one, rows.visible), QUERIES, tokens) for one in (p, rows.p))
    assert int(found.n_queries[0, 0]) == int(whole.n_queries[0, 0]) - 1
    assert not torch.equal(found.sums[:, 0, 0], whole.sums[:, 0, 0])
    assert torch.equal(found.sums[:, 0, 1:], whole.sums[:, 0, 1:])
    assert found.sums.isfinite().all()


def test_layers_that_see_the_same_share_a_baseline_and_others_do_not() -> None:
    one, tokens = a_pass()
    other = AttentionRows(one.p, torch.ones_like(one.visible))
    plan = StatisticsPlan(QUERIES, torch.tensor([0]), tokens, *known_of(tokens))
    first, second, third = (compute_sums(call_of(rows, QUERIES), plan) for rows in (one, other, one))
    assert torch.equal(first.uniform, third.uniform)
    assert not torch.equal(first.uniform, second.uniform)
    fresh = compute_sums(call_of(other, QUERIES), StatisticsPlan(QUERIES, torch.tensor([0]), tokens, *known_of(tokens)))
    torch.testing.assert_close(second.sums, fresh.sums, rtol=0, atol=0)


def test_without_tokens_nothing_is_said_of_them() -> None:
    rows, _ = a_pass()
    found = by_name(compute_sums(call_of(rows, QUERIES), StatisticsPlan(QUERIES, torch.tensor([0]))))
    for name, (value, uniform) in found.items():
        of_tokens = name.startswith(("same", "induction", "copy", "decile", "distinctness"))
        assert value.isnan().all() == uniform.isnan().all() == of_tokens, name


def test_uniform_attention_is_its_own_baseline(way: torch.dtype) -> None:
    rows, tokens = a_pass()
    even = AttentionRows((rows.visible / rows.visible.sum(-1, keepdim=True)).to(way).expand_as(rows.p), rows.visible)
    for name, (value, uniform) in by_name(gathered(even, QUERIES, tokens)).items():
        torch.testing.assert_close(value, uniform.to(value), rtol=1e-6, atol=1e-7, equal_nan=True, msg=name)


def test_masked_rows_count_nowhere() -> None:
    rows, tokens = a_pass()
    nothing = gathered(AttentionRows(torch.full_like(rows.p, torch.nan), rows.visible), QUERIES, tokens)
    assert not nothing.n_queries.any()
    assert nothing.value.isnan().all()
    assert (nothing.sample.p == 0).all()


def test_a_head_that_looks_back_one_is_told_from_one_that_copies() -> None:
    """The control of each pattern is the other."""
    tokens = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3, 4]])
    queries = torch.arange(1, 8)
    visible = torch.arange(9) <= queries[:, None]
    back, induct = torch.zeros(2, 1, 1, 7, 9, dtype=torch.float64)
    for i, q in enumerate(queries.tolist()):
        back[0, 0, i, q - 1] = 1
        induct[0, 0, i, q - 3 if q >= 4 else 0] = 1
    for p, name, other in ((back, "previous", "induction"), (induct, "induction", "previous")):
        found = by_name(gathered(AttentionRows(p, visible), queries, tokens))
        assert float(found[name][0]) == 1.0
        assert float(found[other][0]) < 0.5


def test_all_that_was_found_is_fetched_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """One transfer: on CUDA each waits for the device."""
    transfers = []
    to_host = Tensor.cpu
    monkeypatch.setattr(Tensor, "cpu", lambda tensor: (transfers.append(tensor), to_host(tensor))[1])
    given = [torch.arange(6.0).view(2, 3), torch.tensor(7.0, dtype=torch.float64), torch.ones(0, 2)]
    found = start_transfer(given)()
    assert len(transfers) == 1
    for one, array in zip(given, found, strict=True):
        assert array.dtype == np.float64
        np.testing.assert_array_equal(array, one.numpy())
    assert start_transfer([])() == []


def test_a_look_keeps_layers_of_different_shapes_apart() -> None:
    """Layers of one shape are reduced together and come back in the order in which they were seen; one whose keys are
    another sequence has no tokens, though it has the shape of those that have."""
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(M, (B, T), generator=generator)
    look = AttentionCollector(None, tokens)
    for number, (heads, others) in enumerate(((3, False), (2, False), (3, True), (3, False))):
        p = torch.randn(B, heads, T, T, generator=generator).softmax(-1)
        call = call_of(AttentionRows(p, torch.ones(T, T, dtype=torch.bool)), torch.arange(T))
        look(dataclasses.replace(call, number=number, is_cross=others))
    found = look.finish({}, {})()
    assert [(layer.number, layer.heads) for layer in found.layers] == [(0, 3), (1, 2), (2, 3), (3, 3)]
    assert [np.isnan(copy).all() for copy in found.values["copy"]] == [False, False, True, False]
    for i, (_, one, *_) in enumerate(look.results.values()):
        for line, name in enumerate(STATISTICS):
            np.testing.assert_allclose(found.values[name][i], one.value[line].nanmean(0), rtol=1e-6)
            np.testing.assert_allclose(found.values[f"{name}_uniform"][i], one.uniform[line].nanmean(0), rtol=1e-6)
        np.testing.assert_array_equal(found.values["n_queries"][i], one.n_queries.sum(0))
    assert not np.array_equal(found.values["entropy"][0], found.values["entropy"][2])
