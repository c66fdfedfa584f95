"""The probe in somebody else's training loop."""

from __future__ import annotations

import gc
import json
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr
from torch import Tensor, nn

from refusals import refused
from scansnap import load
from scansnap.probe import measurement
from scansnap.probe.capture import watch_attention
from scansnap.probe.capture.watcher import record
from scansnap.probe.probe import Probe, schedule
from scansnap.probe.schema import STATISTICS
from scansnap.probe.statistics import StatisticsPlan, compute_sums

M, T, B = 13, 11, 3


class Language(nn.Module):
    """Two encoder layers with dropout and a causal mask, as torch has them."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.out = nn.Embedding(M, 8), nn.Linear(8, M)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.2, batch_first=True)
        self.encode = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, input_ids: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(input_ids.shape[1])
        return self.out(self.encode(self.embed(input_ids), mask=mask))


def trained(probed: bool, steps: int = 12) -> tuple[dict[str, Tensor], Probe | None]:
    torch.manual_seed(0)
    model = Language()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    ids = torch.arange(B * T).reshape(B, T) % M
    probe = Probe(model, {"input_ids": ids}, every=3) if probed else None
    for step in range(steps):
        x = torch.randint(M, (4, T))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x)[:, :-1].flatten(0, 1), x[:, 1:].flatten()).backward()
        optimizer.step()
        if probe is not None:
            probe.step(step)
    return model.state_dict(), probe


def test_weights_are_the_same_with_and_without_it() -> None:
    (plain, _), (probed, probe) = trained(False), trained(True)
    for name, tensor in plain.items():
        assert torch.equal(tensor, probed[name]), name
    assert probe is not None
    data = probe.dataset()
    assert data.step.values.tolist() == [0, 3, 6, 9]
    assert data.path.values.tolist() == ["encode.layers.0.self_attn", "encode.layers.1.self_attn"]
    assert data.kind.values.tolist() == ["self", "self"]
    assert data.sizes["head"] == 2
    assert np.isfinite(data.entropy).all()
    assert (data.entropy < data.entropy_uniform).all()
    assert "induction" in data


def test_what_it_says_is_what_the_statistics_say() -> None:
    torch.manual_seed(1)
    model, ids = Language().eval(), torch.randint(M, (B, T))
    probe = Probe(model, ids, queries=None)
    probe.measure(0)
    found = []
    plan = StatisticsPlan(torch.arange(1, T), torch.tensor([0]), ids)
    with watch_attention(model, lambda seen: found.append(compute_sums(seen, plan))), torch.no_grad():
        model(ids)
    data = probe.dataset()
    for layer, one in enumerate(found):
        for i, name in enumerate(STATISTICS):
            np.testing.assert_allclose(data[name][0, layer], one.value[i].double().nanmean(0), rtol=1e-6)


def test_a_batch_is_kept_as_it_was() -> None:
    model, ids = Language(), torch.zeros(B, T, dtype=torch.long)
    probe = Probe(model, ids)
    ids += 1
    assert (probe.batch == 0).all()


def test_a_failing_pass_warns_and_training_goes_on() -> None:
    model = Language()
    probe = Probe(model, torch.zeros(B, T, dtype=torch.long))
    probe.batch.fill_(M)  # no such token
    with pytest.warns(UserWarning, match="the probe could not measure at step 5 .*IndexError"):
        probe.measure(5)
    assert model.training
    assert probe.dataset().sizes.get("step", 0) == 0


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Says when the numbers of a look are waited for."""
    found, start_transfer = [], measurement.start_transfer

    def telling(tensors: list[Tensor]) -> Callable[[], list[np.ndarray]]:
        arrive = start_transfer(tensors)
        return lambda: (found.append("waited"), arrive())[1]

    monkeypatch.setattr(measurement, "start_transfer", telling)
    return found


def test_numbers_in_memory_are_waited_for_when_they_are_needed(
    asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measurement.AttentionCollector, "is_on_gpu", True)
    probe = Probe(Language(), torch.zeros(B, T, dtype=torch.long))
    probe.measure(0)
    assert not asked
    probe.measure(1)  # how far attention has moved since
    assert len(asked) == 1
    assert probe.dataset().step.values.tolist() == [0, 1]
    assert len(asked) == 2
    probe.dataset()
    assert len(asked) == 2


def test_numbers_that_are_written_are_waited_for_at_once(asked: list[str], tmp_path: Path) -> None:
    probe = Probe(Language(), torch.zeros(B, T, dtype=torch.long), out=tmp_path / "probe.zarr")
    probe.measure(0)
    assert len(asked) == 1


def test_numbers_that_do_not_arrive_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost() -> list[np.ndarray]:
        raise RuntimeError("device lost")

    monkeypatch.setattr(measurement, "start_transfer", lambda tensors: lost)
    probe = Probe(Language(), torch.zeros(B, T, dtype=torch.long))
    with pytest.warns(UserWarning, match="the probe could not measure at step 7 .*device lost"):
        probe.measure(7)
    assert probe.dataset().sizes["step"] == 0


def test_training_loss_and_batch_loss_are_two_variables() -> None:
    def forward(model: nn.Module, ids: Tensor) -> dict[str, Tensor]:
        return {"logits": model(ids), "loss": torch.tensor(2.5)}

    ids, told = torch.zeros(B, T, dtype=torch.long), torch.tensor(1.5)
    probe = Probe(Language(), ids, forward=forward)
    probe.measure(0)
    probe.measure(1, told)
    told += 1  # a running mean that goes on
    probe.measure(2, 0.5)
    assert probe.dataset().batch_loss.values.tolist() == [2.5, 2.5, 2.5]
    assert probe.dataset().train_loss.values[1:].tolist() == [1.5, 0.5]
    assert np.isnan(probe.dataset().train_loss.values[0])
    plain = Probe(Language(), ids)
    plain.measure(0)
    assert np.isnan(plain.dataset()[["batch_loss", "train_loss"]].to_array()).all()


def test_nan_is_recorded_with_the_step_since_when(tmp_path: Path) -> None:
    """A warning when it begins, and no value of an earlier measurement after it."""
    torch.manual_seed(0)
    model, ids = Language(), torch.randint(M, (B, T))
    weights = model.encode.layers[1].self_attn.in_proj_weight, model.out.weight
    healthy = [weight.detach().clone() for weight in weights]
    probe = Probe(model, ids, every=1, out=tmp_path / "probe.zarr", max_bytes=10**9)
    probe.step(0, 2.0)
    with torch.no_grad():
        for weight in weights:
            weight[0, 0] = torch.nan  # a query weight of the first head, and one of the output
    for step in (1, 2):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            probe.step(step, torch.inf if step == 2 else 1.0)
        parts = ("attention", "output") if step == 1 else ("train_loss",)
        assert [alert[:2] for alert in probe.fired_alerts][step - 1 :] == [(step, "nonfinite()")]
        assert all(part in str(warning.message) for part in parts for warning in caught)
        assert len(caught) == 1
    data = load(tmp_path / "probe.zarr")
    assert json.loads(data.attrs["nonfinite_since"]) == {"attention": 1, "output": 1, "train_loss": 2}
    assert (data.n_nonfinite.values > 0).tolist() == [[[False] * 2] * 2, *[[[False] * 2, [True, False]]] * 2]
    assert np.isfinite(data.entropy.values).tolist() == [[[True] * 2] * 2, *[[[True] * 2, [False, True]]] * 2]
    probe.report(tmp_path / "probe.html")
    text = (tmp_path / "probe.html").read_text()
    assert re.search(r"NaN or infinite values since step 1 \(attention, output", text)
    with torch.no_grad():
        for weight, values in zip(weights, healthy, strict=True):
            weight.copy_(values)
    probe.step(3, 1.0)
    assert "nonfinite_since" not in probe.dataset().attrs, "the control"


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("way", ["sdpa", "softmax", "mask"])
def test_logits_that_are_not_finite_are_not_taken_for_masked_ones(way: str, value: float) -> None:
    class Attention(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            mask = torch.zeros(T, T).masked_fill(torch.ones(T, T).triu(1).bool(), -torch.inf)
            mask[0] = -torch.inf  # a masked row is no error
            if way == "mask":
                return nn.functional.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None], mask)
            if way == "sdpa":
                return nn.functional.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None], is_causal=True)
            return (x @ x.mT + mask).softmax(-1) @ x

    x = torch.ones(B, T, 4)
    x[1, 5, 2] = value
    probe = Probe(nn.Sequential(Attention()), x, queries=None)
    with pytest.warns(UserWarning, match="step 0: .* attention, output"):
        probe.measure(0)
    assert probe.dataset().n_nonfinite.values.tolist() == [[[T - 1 if way == "softmax" else T - 5]]]  # NaN − ∞ is NaN


@pytest.mark.parametrize("collecting", [True, False])
def test_garbage_is_collected_afterwards_as_before(collecting: bool) -> None:
    probe, during = Probe(model := Language(), torch.zeros(B, T, dtype=torch.long)), []
    model.register_forward_hook(lambda *_: during.append(gc.isenabled()))
    try:
        (gc.enable if collecting else gc.disable)()
        probe.measure(0)
        assert gc.isenabled() is collecting
        assert during == [False]
    finally:
        gc.enable()


def test_a_model_without_attention_is_said() -> None:
    probe = Probe(nn.Linear(4, 4), torch.randn(2, 4))
    with pytest.warns(UserWarning, match="the probe captured no attention"):
        probe.measure(0)


@pytest.mark.parametrize(
    ("every", "due"),
    [
        (4, [0, 4, 8, 12, 16, 20]),
        ([2, 7], [2, 7]),
        ("log:3", [0, 1, 3, 5, 10, 22]),  # 10^(1/3) = 2.15, 10^(2/3) = 4.64, 10, 21.5
    ],
)
def test_when_it_measures(every, due) -> None:
    asked = schedule(every)
    assert [step for step in range(23) if asked(step)] == due


@pytest.mark.parametrize("every", ["log", "log:0", "often", 0, -3, 0.5, None, [1.5]])
def test_times_that_cannot_be(every) -> None:
    with refused("every"):
        schedule(every)


class Causal(nn.Module):
    """Attention of random q and k with a mask, as transformers passes it."""

    def __init__(self, is_causal: bool = True) -> None:
        super().__init__()
        self.embed, self.qk, self.is_causal = nn.Embedding(M, 16), nn.Linear(16, 32), is_causal

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        q, k = (t.unflatten(-1, (2, -1)).transpose(1, 2) for t in self.qk(3 * self.embed(input_ids)).chunk(2, -1))
        mask = torch.ones(input_ids.shape[1], input_ids.shape[1], dtype=torch.bool)
        mask = mask.tril() if self.is_causal else mask
        if attention_mask is not None:
            mask = mask & (attention_mask[:, None, None] != 0)
        return nn.functional.scaled_dot_product_attention(q, k, k, mask)


@pytest.mark.parametrize("is_causal", [True, False])
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_is_no_query_and_no_first_key(side: str, is_causal: bool) -> None:
    """The statistics are those of the sequences without padding; with padding as queries they are not."""
    torch.manual_seed(3)
    model, lengths = Causal(is_causal), (T, T - 4, T - 5)
    sequences = [torch.randint(M, (1, length)) for length in lengths]

    def padded(rows: list[Tensor]) -> Tensor:
        pads = [(T - row.shape[1], 0) if side == "left" else (0, T - row.shape[1]) for row in rows]
        return torch.cat([nn.functional.pad(row, pad) for row, pad in zip(rows, pads, strict=True)])

    def measured(batch: dict[str, Tensor], forward: Any = None) -> xr.Dataset:
        probe = Probe(model, batch, queries=None, forward=forward)
        probe.measure(0)
        with torch.no_grad():
            model.qk.weight.mul_(1.1)
            probe.measure(1)
            model.qk.weight.div_(1.1)
        return probe.dataset()

    ids, mask = padded(sequences), padded([torch.ones_like(row) for row in sequences])
    data = measured({"input_ids": ids, "attention_mask": mask})
    alone = [measured({"input_ids": row}) for row in sequences]
    assert data.n_queries[0, 0].values.tolist() == [sum(lengths) - len(lengths) * is_causal] * 2
    for name in ("entropy", "entropy_uniform", "sink", "sink_uniform", "sink_share", "previous", "same_token_all"):
        wanted = np.mean([one[name].values for one in alone], 0)
        np.testing.assert_allclose(data[name].values, wanted, rtol=1e-4, atol=1e-6, err_msg=name)
    weights = np.array(lengths) - is_causal
    wanted = np.average([one.moved.values[1] for one in alone], axis=0, weights=weights)
    np.testing.assert_allclose(data.moved.values[1], wanted, rtol=1e-4)
    control = measured({"input_ids": ids, "mask": mask}, lambda model, batch: model(batch["input_ids"], batch["mask"]))
    assert (control.n_queries > data.n_queries).all() or side == "left"
    assert not np.allclose(control.sink, data.sink)


@pytest.mark.parametrize("queries", [None, 4])
def test_the_first_query_counts_where_it_has_a_choice(queries: int | None) -> None:
    ids = torch.arange(2 * T).reshape(2, T) % M
    for is_causal in (True, False):
        probe = Probe(Causal(is_causal), ids, queries=queries)
        probe.measure(0)
        data = probe.dataset()
        assert data.sampled_position.values[0] == is_causal
        assert data.n_queries.values[0, 0, 0] == 2 * (queries or T - is_causal)


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("batch", {"batch": torch.full((B, T), M)}),  # no such token
        ("batch", {"forward": lambda model, batch: model(batch, 1, 2)}),
        ("every", {"every": 0.5}),
        ("words", {"words": ["a"] * (M - 1)}),
        ("words", {"words": [1] * M}),
        ("words", {"words": "a" * M}),
        ("words", {"words": ["a"] * M, "batch": torch.randn(B, T), "forward": lambda model, batch: None}),
        ("sink_tokens", {"sink_tokens": [-1]}),
        ("max_bytes", {"max_bytes": 0}),
    ],
)
def test_bad_input_is_refused_before_training(field: str, given: dict[str, Any], tmp_path: Path) -> None:
    model, out = Language(), tmp_path / "probe.zarr"
    batch = torch.full((B, T), M - 1)
    before = torch.get_rng_state()
    Probe(model, batch, words=["a"] * M)  # the control
    with refused(field):
        Probe(**{"model": model, "batch": batch, "out": out, **given})
    assert not out.exists()
    assert model.training
    assert torch.equal(torch.get_rng_state(), before)


def test_a_report_without_measurements_says_so(tmp_path: Path) -> None:
    for name, model, n in (("before the first step", Language(), 0), ("without attention", nn.Embedding(M, 3), 1)):
        probe = Probe(model, torch.zeros(B, T, dtype=torch.long))
        for step in range(n):
            with pytest.warns(UserWarning, match="no attention"):
                probe.measure(step)
        probe.report(tmp_path / "page.html")
        text = (tmp_path / "page.html").read_text()
        assert ("Nothing has been measured" if n == 0 else "No attention was captured") in text, name


def test_stored_samples_are_bounded() -> None:
    ids = torch.zeros(B, T, dtype=torch.long)
    for max_bytes in (200_000_000, 2000):
        probe = Probe(Language(), ids, max_bytes=max_bytes)
        probe.measure(0)
        stored = sum(4 * sample.numel() for sample in probe.measurements.first.values())
        n_rows = {sample.shape[2] for sample in probe.measurements.first.values()}
        if max_bytes == 2000:
            assert n_rows == {1}, "fewer rows"
        else:
            assert n_rows != {1}, "the control"
            assert 24 * stored < max_bytes


def test_the_size_of_the_file_is_stated_before_the_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ids, written, n = torch.zeros(B, T, dtype=torch.long), {}, 30
    for max_bytes in (200_000_000, 20_000):
        out = tmp_path / f"{max_bytes}.zarr"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # every=1 outgrows the bound, later
            probe = Probe(Language(), ids, every=1, out=out, max_bytes=max_bytes)
        stated = capsys.readouterr().err
        assert f"{out} takes about {probe.size.of(1001) / 1e6:,.1f} MB after 1,000 steps (1,001 measurements)" in stated
        for step in range(n):
            probe.step(step)
        written[max_bytes] = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
        assert written[max_bytes] <= probe.size.of(n) <= 2 * written[max_bytes]
    assert not written[200_000_000] <= probe.size.of(n), "the control: the size of the bounded file"
    Probe(Language(), ids)
    assert not capsys.readouterr().err, "nothing is written"


@pytest.mark.parametrize(
    ("every", "max_bytes", "exceeds"),
    [(1, 200_000_000, True), ("log:40", 200_000_000, False), ("log:40", 300_000, True), (1, 10**10, False)],
)
def test_a_file_that_outgrows_its_bound_is_warned_of(every: Any, max_bytes: int, exceeds: bool, tmp_path: Path) -> None:
    ids, out = torch.zeros(B, T, dtype=torch.long), tmp_path / "probe.zarr"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        probe = Probe(Language(), ids, every=every, out=out, max_bytes=max_bytes)
    said = [str(warning.message) for warning in caught]
    assert len(said) == exceeds
    for text in said:
        assert text.startswith("every: ")
        assert f"max_bytes={max_bytes:,}" in text
        first = int(re.search(r"from step ([\d,]+) on", text)[1].replace(",", ""))
        n = sum(map(schedule(every), range(first + 1)))
        assert probe.size.of(n - 1) <= max_bytes < probe.size.of(n)


def test_tokens_can_be_sinks() -> None:
    """A BOS token in the middle of packed rows; without sink_tokens it is none."""
    ids = torch.randint(1, M, (B, T))
    ids[:, 4] = 0

    def forward(model: nn.Module, batch: Tensor) -> None:
        logits = torch.where(batch == 0, 20.0, 0.0)[:, None, None].expand(B, 1, T, T).clone()
        logits = logits.masked_fill(~torch.ones(T, T, dtype=torch.bool).tril(), -torch.inf)
        record(logits.softmax(-1), "packed")

    sinks = {}
    for name, tokens in (("with", [0]), ("without", [])):
        probe = Probe(nn.Linear(1, 1), ids, forward=forward, sink_tokens=tokens, queries=None)
        probe.measure(0)
        data = probe.dataset()
        sinks[name] = bool(data.is_sink.item())
        if tokens:
            assert data.sink.item() > 0.6
    assert sinks == {"with": True, "without": False}
