"""The probe's page: everything in one file, nothing made up, nothing that a name or a word could break."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr
from probe_data import WORDS, made
from torch import nn

from refusals import refused
from scansnap.html.page import script_hash
from scansnap.probe.probe import Probe
from scansnap.probe.report.page import PACKAGE, page, report

VOID = {"meta", "link", "path", "rect", "col", "br"}
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)> & \"'"


class Reader(HTMLParser):
    """Every element with its attributes and text; complains about what is not closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(text)
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts.setdefault(self.open[-1], []).append(data)

    def all(self, name: str) -> list[dict[str, str | None]]:
        """Attributes of the elements of a class."""
        return [attrs for _, attrs in self.found if name in (attrs.get("class") or "").split()]

    @property
    def data(self) -> dict[str, Any]:
        return json.loads(next(text for text in self.texts["script"] if text.startswith("{")))


def words_in(text: str) -> str:
    """What a reader sees before any script has run."""
    return " ".join(re.sub(r"<[^>]*>", " ", re.sub(r"(?s)<(script|style).*?</\1>", " ", text)).split())


@pytest.fixture(scope="module")
def data() -> xr.Dataset:
    return made()


@pytest.fixture(scope="module")
def text(data: xr.Dataset) -> str:
    return page(data)


def test_it_is_one_file_that_asks_for_nothing(text: str) -> None:
    assert not re.search(r"https?://|@import|url\(", text)
    for tag, attrs in Reader(text).found:
        assert not attrs.get("src"), tag
        assert (attrs.get("href") or "#").startswith(("#", "data:,")), attrs
        assert not any(name.startswith("on") for name in attrs), attrs


def test_every_head_has_a_cell_with_its_verdict(data: xr.Dataset, text: str) -> None:
    cells = Reader(text).all("cell")
    verdicts = data["verdict"].values
    assert [cell["aria-label"] for cell in cells] == [
        f"layer {i} · head {j}: {verdicts[i, j]}" for i in range(4) for j in range(6)
    ]
    n = {word: sum(word in said.split() for said in verdicts.ravel()) for word in ("scans", "snaps", "undecided")}
    assert n["scans"] != n["snaps"], "the test would not see them exchanged"
    for word, count in n.items():
        assert re.search(rf"Of 24 heads: .*\b{count} {word}\b.*several verdicts", words_in(text))
    marked = sum("snaps" in said for said in verdicts.ravel())
    assert text.count('class="snap" d=') == text.count("<i style=") == marked


def test_the_curves_are_the_data(data: xr.Dataset, text: str) -> None:
    drawn = Reader(text).data
    np.testing.assert_array_equal(drawn["t"], data["step"].values)
    named = {one["title"]: one for one in drawn["quantities"]}
    for title, values in (("entropy", data["entropy_rel"].values), ("sink", data["sink"].values),
                          ("distinctness", data["distinctness"].mean("sequence").values)):  # fmt: skip
        one = named[title]
        heights = np.array(one["lines"], dtype=float) / 1000
        shown = one["low"] + heights * (one["high"] - one["low"])
        np.testing.assert_allclose(shown, values.transpose(1, 2, 0), atol=0.51e-3 * (one["high"] - one["low"]))
    assert named["entropy"]["uniform"] == [[1000] * 6] * 4


def test_the_heads_that_scan_most_come_with_their_words(data: xr.Dataset, text: str) -> None:
    best = np.argsort(-data["scan_index"].values.ravel())[:5]
    titles = re.findall(r"<h3>(layer \d+ · head \d+) ", text)
    assert titles == [f"layer {i // 6} · head {i % 6}" for i in best]
    shown = {word.get("title") for word in Reader(text).all("w")}
    assert len(shown) > 3
    assert "comet" in words_in(text)
    assert "Ġ" not in words_in(text)


def one_sentence(**attention: Any) -> xr.Dataset:
    """A single head whose last sampled query looks at what it is told to, and the others at nothing."""
    data = made(1, 1, sequences=1, length=200)
    data["tokens"].values[:] = np.arange(200)[None] % len(WORDS)
    for when in ("first", "last"):
        data[f"attention_{when}"].values[:] = 0
        for at, weight in attention[when].items():
            data[f"attention_{when}"].values[..., -1, at] = weight
    return data


def test_a_sentence_is_shaded_by_attention_and_shortened_where_nothing_is_looked_at() -> None:
    """The last query is at 199: near it 175 to 199 are shown, and around what it looks at further away."""
    text = page(one_sentence(first={10: 0.64, 199: 0.36}, last={10: 0.01, 190: 0.25, 100: 0.03, 40: 0.71}))
    rows = re.findall(r'(?s)<div class="sentence"><b>(.*?)</b><p>(.*?)</p>', text)
    assert [when for when, _ in rows] == ["step 0", "step 10\u2009000"]
    pattern = r'class="w( q)?" style="--a:([\d.]+)" title="([^"]*)">([^<]*)<'
    before, words = (re.findall(pattern, row) for _, row in rows)
    assert len(words) == 25 + 5 + 5
    assert [(w[1], w[2]) for w in words if float(w[1]) > 0] == [
        ("0.100", "1.0 %"),
        ("0.843", "71 %"),
        ("0.500", "25 %"),
    ]
    assert rows[1][1].count("…") == 3  # before 8, 38 and 175
    assert "(3.0 % elsewhere)" in rows[1][1]
    assert [w[2] for w in before if float(w[1]) > 0] == ["64 %", "36 %"]
    assert [w[3] for w in words if w[0]] == [WORDS[199 % len(WORDS)].lstrip("Ġ")]


def test_the_query_shown_has_words_to_choose_from() -> None:
    """An early one that changed more is passed over; of those from the median on, the one that changed most."""
    data = one_sentence(first={199: 1.0}, last={150: 0.2, 199: 0.8})
    data["attention_first"].values[..., 0, :2], data["attention_last"].values[..., 0, :2] = (1, 0), (0, 1)
    data["attention_first"].values[..., 1, :2], data["attention_last"].values[..., 1, :2] = (0.5, 0.5), (0, 1)
    text = page(data)
    assert re.findall(r'class="w q"[^>]*>([^<]*)<', text) == [WORDS[100 % len(WORDS)].lstrip("Ġ")] * 2


def test_where_no_head_scans_none_is_said_to() -> None:
    data = made(1, 2)
    data["verdict"] = (("layer", "head"), np.array([["other", "undecided"]]))
    said = words_in(page(data))
    assert "The 2 heads with the greatest scan index The data do not show that any of them scans." in said
    assert "that scan most" not in said


def test_without_words_the_tokens_are_shown_by_number() -> None:
    text = page(one_sentence(first={199: 1.0}, last={198: 1.0}).drop_vars("words"))
    sentence = re.search(r'(?s)class="sentence"><b>.*?</b><p>(.*?)</p>', text)
    assert sentence is not None
    assert re.findall(r">([^<]+)</bdi>", sentence[1])[-1] == str(199 % len(WORDS))


def hostile(data: xr.Dataset) -> xr.Dataset:
    n = data.sizes["layer"]
    words = np.array([HOSTILE, "\u202eevil", "\x00", "\n", *WORDS[4:]], dtype=object)
    words[5] = "half \ud800"
    data = data.drop_vars("words").assign_coords(
        path=("layer", [HOSTILE] * n), kind=("layer", [HOSTILE] * n), words=("token", words)
    )
    return data.assign_attrs(model=HOSTILE, batch=HOSTILE, coverage=HOSTILE, corpus=HOSTILE, **{HOSTILE: HOSTILE})


def test_no_name_and_no_word_gets_into_the_markup(data: xr.Dataset) -> None:
    text, plain = page(hostile(data)), page(data)
    read = Reader(text)
    assert [tag for tag, _ in read.found].count("script") == 2
    assert not [tag for tag, _ in read.found if tag == "img"]
    assert {name for _, attrs in read.found for name in attrs} == {n for _, attrs in Reader(plain).found for n in attrs}
    assert read.data["heads"][0]["path"] == HOSTILE
    assert not re.search("[\u202e\x00\ud800]", text)


def without(data: xr.Dataset, *names: str) -> xr.Dataset:
    for name in names:
        data[name].values[...] = np.nan
    return data


CASES = {
    "no corpus": (lambda: without(made(), "distinctness", "mass_by_decile", "uniform_by_decile", "scan_index",
                                  "rank_corr").assign(scan_low=np.nan, scan_high=np.nan),
                  "The 5 heads whose attention moved furthest"),
    "no loss": (lambda: without(made(), "train_loss"), "There is no loss."),
    "one measurement": (lambda: made(steps=1), "1 measurement, step 0 "),
    "cross attention": (lambda: made(1, 3, cross=True), "this is cross attention"),
    "no samples": (lambda: made().drop_vars(["tokens", "attention_first", "attention_last", "sampled_position"]),
                   "No sentence: "),
    "only some variables": (lambda: made()[["entropy_rel", "train_loss"]], "24 heads over training"),
    "nothing measured": (lambda: xr.Dataset(coords={"step": np.array([], int)}), "No attention was measured"),
    "something wrong": (lambda: made().assign_attrs(headline="2 heads collapsed (layer 0: heads 1, 3)"),
                        "2 heads collapsed (layer 0: heads 1, 3)"),
    "images": (lambda: made().drop_vars("tokens"), "makes no statement about scanning"),
    "late": (lambda: made(last=3).isel(step=slice(1, None)), "3 measurements, step 1 to 3"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_is_missing_is_said(name: str) -> None:
    make, said = CASES[name]
    text = page(make())
    Reader(text)
    assert said in words_in(text) + " "
    assert not re.search(r"\bnan\b|\binf\b|\bNone(?! of these)", re.sub(r"(?s)<(script|style).*?</\1>", "", text))


def test_a_layer_with_fewer_heads_has_fewer_cells() -> None:
    labels = [cell["aria-label"] or "" for cell in Reader(page(made(3, 5, fewer=2))).all("cell")]
    assert sum(label.startswith("layer 0 ") for label in labels) == 2
    assert len(labels) == 12


def test_values_that_are_not_finite_are_gaps() -> None:
    data = made(1, 1, steps=20)
    n = data.sizes["step"]
    data["entropy_rel"].values[3], data["entropy_rel"].values[5], data["train_loss"].values[2] = np.nan, np.inf, -np.inf
    read = Reader(page(data))
    line = read.data["quantities"][0]["lines"][0][0]
    assert [i for i in range(n) if line[i] is None] == [3, 5]
    cell = str([attrs["d"] for attrs in read.all("curve") if "d" in attrs][1])  # after that of the loss
    assert cell.count("M") == 3
    assert cell.count("h0") == 1, "the point between the gaps is a dot"


@pytest.mark.parametrize(("n_finite", "ends"), [(10, True), (20, False)])
def test_a_loss_that_is_not_finite_is_not_shown_by_an_earlier_one(n_finite: int, ends: bool) -> None:
    data = made(1, 1, steps=20)
    data["train_loss"].values[n_finite:] = np.nan
    assert ("→ –" in words_in(page(data))) is ends


def test_twelve_layers_of_twelve_heads_stay_small() -> None:
    data = made(12, 12, steps=200)
    assert data.sizes["step"] > 150
    text = page(data)
    assert len(text.encode()) < 3e6
    drawn = Reader(text).data
    assert len(drawn["t"]) <= 128
    assert (drawn["t"][0], drawn["t"][-1]) == (0, 10_000)


def test_a_probe_writes_it(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(7, 8), nn.TransformerEncoderLayer(8, 2, 8, batch_first=True))
    probe = Probe(model, torch.randint(7, (3, 9)), every=1)
    for step in range(2):
        probe.step(step, loss=3.25 - step)
        nn.init.normal_(model[1].self_attn.in_proj_weight)
    probe.report(tmp_path / "probe.html")
    text = (tmp_path / "probe.html").read_text(encoding="utf-8")
    assert len(Reader(text).all("cell")) == 2
    assert "3.25 → 2.25" in words_in(text)
    assert len(Reader(text).all("sentence")) == 2 * 2, "two heads, at first and at last"


def test_it_is_written_whole_or_refused(data: xr.Dataset, tmp_path: Path) -> None:
    report(data, tmp_path / "new" / "probe.html")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["probe.html"]
    (tmp_path / "a file").touch()
    for bad in (tmp_path, tmp_path / "a file" / "x.html", "", None, tmp_path / "x.zarr" / "x.html"):
        with refused("the report's path"):
            report(data, bad)  # type: ignore[arg-type]


def test_the_hash_is_that_of_the_script_in_the_page(text: str) -> None:
    script = text.rsplit('<script type="module">', 1)[1].split("</script>")[0]
    assert script_hash(PACKAGE) == "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src '{script_hash(PACKAGE)}'" in text


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_colours_stand_out_from_the_paper_by_day_and_by_night(text: str) -> None:
    """As WCAG 2 counts contrast: 4.5 for text, 3 for lines."""
    pairs = re.findall(r"--(\w+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)", text)
    for scheme in (1, 2):
        colours = {pair[0]: pair[scheme] for pair in pairs}
        for name, least in {"ink": 7, "soft": 4.5, "blue": 3, "orange": 3, "amber": 3, "green": 3, "grey": 3,
                            "violet": 3, "red": 3}.items():  # fmt: skip
            for paper in ("paper", "card"):
                light, dark = sorted((luminance(colours[name]), luminance(colours[paper])), reverse=True)
                assert (light + 0.05) / (dark + 0.05) >= least, (name, paper)
