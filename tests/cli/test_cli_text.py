"""``scansnap text`` as a person meets it, on a text of a few hundred lines."""

import json
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest

from scansnap.cli.text.train import DEFAULTS, KINDS, model_settings, model_specs
from scansnap.dynamics.schedules import Schedule
from scansnap.explorer.lab import lens
from scansnap.text.model_files import read_header

LINES = ["the cat sat on the mat", "the dog ran in the park", "a cat and a dog met on the mat", "we saw the park"]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    for i, split in enumerate(("train", "valid", "test")):
        lines = [LINES[(n * (i + 1)) % 4] for n in range(200 if split == "train" else 30)]
        (folder / f"{split}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


@pytest.fixture
def text_command(scansnap, monkeypatch, tmp_path):
    """``scansnap text …`` with a cache of its own and no text but what it is given."""
    monkeypatch.setenv("SCANSNAP_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SCANSNAP_DATA", raising=False)
    return lambda *words: scansnap("text", *words)


@pytest.fixture
def text_refuses(text_command, refuses):
    return lambda field, *words, **facts: refuses(field, "text", *words, **facts)


@pytest.fixture
def model(text_command, text, tmp_path):
    code, _, err = text_command("train", "--data", text, "--steps", 30, "--batch", 4, "--length", 8, "--eta-y", 20,
                            "--eta-z", 2, "--out", "m.safetensors", "--device", "cpu")  # fmt: skip
    assert code == 0, err
    return tmp_path / "m.safetensors"


@pytest.mark.parametrize("kind", ["yz", "transformer"])
def test_train_writes_a_model_with_its_words(text_command, text, tmp_path, kind):
    code, out, _ = text_command("train", "--model", kind, "--data", text, "--steps", 5, "--batch", 4, "--length", 8,
                            "--out", "a/m.safetensors", "--json", "--device", "cpu")  # fmt: skip
    assert code == 0
    result = json.loads(out)
    assert result["steps"] == 5
    assert result["perplexity"] > 1
    assert {path.name for path in (tmp_path / "a").iterdir()} == {"m.safetensors"}


def test_train_gathers_gradients_and_follows_a_schedule(text_command, text_refuses, text, tmp_path):
    words = (
        "train",
        "--model",
        "transformer",
        "--data",
        text,
        "--steps",
        6,
        "--length",
        8,
        "--device",
        "cpu",
        "--dropout",
        0,
    )
    rates = ("--schedule", "warmup(2) cosine(0.1)")
    code, out, err = text_command(*words, *rates, "--batch", 2, "--accumulate", 3, "--out", "a.safetensors", "--json")
    assert code == 0, err
    code, whole, _ = text_command(*words, *rates, "--batch", 6, "--out", "b.safetensors", "--json")
    assert json.loads(out)["perplexity"] == pytest.approx(json.loads(whole)["perplexity"], rel=1e-4)
    data = read_header(tmp_path / "a.safetensors").data
    assert data["schedule"] == str(Schedule.parse("warmup(2) cosine(0.1)").resolve(6))
    assert data == read_header(tmp_path / "b.safetensors").data
    text_refuses("checkpoint", *words, "--batch", 6, "--resume", "--out", "a.safetensors", names=("schedule", "cosine"))


def test_train_tells_its_speed_with_and_without_measurements(text_command, text):
    words = ("train", "--data", text, "--steps", 9, "--batch", 4, "--length", 8, "--device", "cpu")
    code, out, err = text_command(*words, "--out", "a.safetensors")
    assert code == 0, err
    pattern = r"9 steps on .* s: ([\d,]+) tokens/s in updates, ([\d,]+) with the start, measurements and writing"
    alone, all_of_it = (int(n.replace(",", "")) for n in re.search(pattern, " ".join(out.split())).groups())
    assert alone > all_of_it > 0
    result = json.loads(text_command(*words, "--out", "b.safetensors", "--json")[1])
    assert result["tokens_per_second_of_updates"] > result["tokens_per_second"] > 0


PREDICT = ("predict", "--batch", 4, "--length", 8, "--eta-y", 20, "--eta-z", 2, "--device", "cpu")


def test_default_outputs_are_numbered(text_command, text, tmp_path):
    for command, name in (("train", "model"), ("predict", "prediction")):
        words = (command, *PREDICT[1:], "--data", text, "--steps", 2, "--json")
        for options, suffix in (((), ""), ((), "-2"), (("--resume",), "-2"), (("--overwrite",), "")):
            code, out, err = text_command(*words, *options)
            assert code == 0, err
            assert json.loads(out)["model"] == f"out/{name}{suffix}.safetensors"
    assert len(list((tmp_path / "out").iterdir())) == 4


def test_predict_names_the_words_of_each_query(text_command, text, tmp_path):
    asked = (*PREDICT, "--data", text, "--query", "the", "--query", "park", "--at", 10, "--top", 3)
    code, out, _ = text_command(*asked, "--steps", 30, "--out", "p.safetensors", "--json")
    assert code == 0
    result = json.loads(out)
    assert [(prediction["query"], prediction["step"]) for prediction in result["predicted"]] == [
        ("the", 10), ("the", 30), ("park", 10), ("park", 30)
    ]  # fmt: skip
    for prediction in result["predicted"]:
        z = [z for _, z in prediction["words"]]
        assert 1 <= len(z) <= 3
        assert z == sorted(z, reverse=True)
    code, out, _ = text_command(*asked, "--steps", 30, "--out", "p.safetensors", "--resume")
    assert code == 0
    assert "predicted words" in out
    shown = " ".join(word for word, _ in result["predicted"][1]["words"])
    assert shown in " ".join(out.split())
    code, out, _ = text_command("explain", "p.safetensors", "--query", "the")
    assert code == 0
    assert out.startswith("Prediction of a YZ model")
    assert {path.name for path in tmp_path.iterdir()} == {"p.safetensors", "cache"}


@pytest.mark.parametrize(
    ("options", "field"),
    [
        (("--rank", 3), "rank"), (("--layers", 2), "layers"), (("--init", "uniform"), "init"),
        (("--query", "zebra"), ("word", "zebra")), (("--at", 6), "--at"), (("--top", 0), "--top"),
        (("--resume",), "--out"),
    ],
)  # fmt: skip
def test_predict_refuses_in_one_sentence(text_refuses, text, tmp_path, options, field):
    text_refuses(field, *PREDICT, "--data", text, "--steps", 5, "--out", "p.safetensors", *options)
    assert not (tmp_path / "p.safetensors").exists()


def test_a_training_is_no_prediction_to_go_on_with(text_refuses, text, model):
    words = (*PREDICT, "--data", text, "--steps", 40, "--out", model, "--resume")
    text_refuses("checkpoint", *words, names="uniform_attention")


def test_explain_shows_attention_and_votes(text_command, model):
    code, out, _ = text_command("explain", model, "--query", "the", "--context", "cat sat on", "--figure", "e.png")
    assert code == 0
    assert "“the” attends to" in out
    assert "next:" in out
    assert (model.parent / "e.png").read_bytes().startswith(b"\x89PNG")
    code, out, _ = text_command("explain", model, "--query", "the", "--top", 3, "--json")
    assert len(json.loads(out)["attended"]) == 3


def test_sample_is_the_same_for_a_seed(text_command, model):
    first, second, other = (text_command("sample", model, "--prompt", "the cat", "--words", 12, "--seed", s)[1]
                            for s in (1, 1, 2))  # fmt: skip
    assert first == second != other
    assert first.startswith("the cat")


def test_evaluate_tells_what_sparsity_costs(text_command, model, text):
    code, out, _ = text_command("evaluate", model, "--data", text, "--mass", 0.9, "--json", "--device", "cpu")
    assert code == 0
    result = json.loads(out)
    assert 0 < result["share_needed"][0] <= 1
    assert result["perplexity"] > 1
    code, out, _ = text_command("evaluate", model, "--data", text, "--device", "cpu")
    assert "perplexity with those keys only" in out


SUBWORDS = ("--tokenizer", "bpe", "--vocab-size", 270, "--steps", 30, "--batch", 4, "--length", 8, "--device", "cpu")


@pytest.mark.parametrize("kind", ["yz", "transformer"])
def test_a_model_of_subwords_can_be_asked_everything(text_refuses, text_command, text, tmp_path, monkeypatch, kind):
    code, out, err = text_command(
        "train", "--model", kind, "--data", text, *SUBWORDS, "--out", "s.safetensors", "--json"
    )
    assert code == 0, err
    result = json.loads(out)
    assert result["vocab_size"] == 270
    assert result["perplexity_per_word"] > result["perplexity"] > 1
    code, out, _ = text_command("sample", "s.safetensors", "--prompt", "the cat", "--words", 12)
    assert code == 0
    assert out.startswith("the cat")
    assert not {"#", "Ġ"} & set(out)  # pieces joined to words
    code, out, _ = text_command("evaluate", "s.safetensors", "--data", text, "--json")
    assert code == 0
    evaluation = json.loads(out)
    per_word = [
        math.log(values["perplexity_per_word"]) / math.log(values["perplexity"]) for values in (result, evaluation)
    ]
    assert per_word[0] == pytest.approx(per_word[1])  # tokens in a word; windows are longer here than in training
    nats = math.log(evaluation["perplexity_per_word"]) * (len((text / "valid.txt").read_text().split()) + 30 - 1)
    characters = len((text / "valid.txt").read_text())
    assert evaluation["bits_per_character"] == pytest.approx(nats / math.log(2) / characters)
    assert evaluation["unknown"] == 0
    monkeypatch.setitem(sys.modules, "tokenizers", None)  # reading tables takes no cutting
    code, out, _ = text_command("explain", "s.safetensors", "--query", "the", "--json")
    assert code == 0
    assert json.loads(out)["query"] == "the"
    assert [evaluation["name"] for evaluation in lens.models(tmp_path)] == ["s"]
    assert lens.explain(lens.check(tmp_path, "s", "the"), "the")["query"] == "the"
    text_refuses("tokenizer", "sample", "s.safetensors", "--prompt", "the cat", names="scansnap[text]")


def test_a_prediction_of_subwords(text_command, text_refuses, text, tmp_path):
    code, out, err = text_command("predict", "--data", text, *SUBWORDS, "--query", "the", "--out", "p.safetensors",
                                  "--json")  # fmt: skip
    assert code == 0, err
    assert json.loads(out)["predicted"][0]["words"]
    words = ("predict", "--data", text, *SUBWORDS, "--query", "cats", "--out", "q.safetensors")
    text_refuses("word", *words, value="cats")


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (("--tokenizer", "bpe", "--vocab-size", 100), "vocab_size"),
        (("--tokenizer", "bpe", "--vocab-size", "many"), "vocab_size"),
        (("--tokenizer", "none.json"), "tokenizer"),
        (("--vocab-size", 300), "vocab_size"),
        (("--tokenizer", "bpe", "--max-words", 300), "max_words"),
    ],
)
def test_tokens_that_cannot_be_had(text_refuses, text, tmp_path, words, field):
    text_refuses(field, "train", "--data", text, *words, "--steps", 5, "--out", "a.safetensors")
    assert list(tmp_path.iterdir()) == []


def test_another_tokenizer_does_not_go_on(text_command, text_refuses, text, tmp_path):
    train = ("train", "--data", text, *SUBWORDS, "--out", "s.safetensors")
    assert text_command(*train)[0] == 0
    text_refuses("checkpoint", *train[:-2], "--vocab-size", 265, *train[-2:], "--resume", value="s.safetensors")


def test_a_longer_training_goes_on_where_the_shorter_ended(text_command, model, text):
    options = ("--data", text, "--batch", 4, "--length", 8, "--eta-y", 20, "--eta-z", 2, "--device", "cpu", "--json")
    code, out, err = text_command("train", *options, "--steps", 40, "--resume", "--out", model)
    assert code == 0, err
    code, whole, _ = text_command("train", *options, "--steps", 40, "--out", "whole.safetensors")
    assert json.loads(out)["perplexity"] == json.loads(whole)["perplexity"]


@pytest.mark.parametrize(
    ("code", "change"),
    [
        (2, ["--resume", "--max-words", 6]),
        (2, ["--overwrite", "--optimizer", "none"]),
        (1, ["--overwrite", "--eta-y", "1e30", "--eta-z", "1e30"]),  # no good state to save
    ],
    ids=["resume with other words", "overwrite with a bad option", "overwrite and diverge at once"],
)
def test_a_training_that_comes_to_nothing_leaves_the_model_and_its_words(text_command, model, text, code, change):
    before, explanation = model.read_bytes(), text_command("explain", model, "--query", "mat", "--json")
    result, _, err = text_command("train", "--data", text, "--steps", 40, "--batch", 4, "--length", 8, "--eta-y", 20,
                                 "--eta-z", 2, "--out", model, "--device", "cpu", *change)  # fmt: skip
    assert result == code, err
    assert model.read_bytes() == before
    assert text_command("explain", model, "--query", "mat", "--json") == explanation


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (["train", "--model", "lstm"], "--model"),
        (["train", "--out", "m.bin"], ("--out", "m.bin")),
        (["train", "--data", "nowhere"], "data"),
        (["train", "--resume", "--out", "none.safetensors"], ("--out", "none.safetensors")),
        (["explain", "none.safetensors", "--query", "the"], ("MODEL", "none.safetensors")),
    ],
)
def test_bad_input_is_one_sentence(text_refuses, text, tmp_path, words, field):
    data = [] if "--data" in words or words[0] == "explain" else ["--data", text]
    text_refuses(field, *words, *data)
    assert not list(tmp_path.glob("*.safetensors"))
    assert not list(tmp_path.glob("*.json"))


def test_an_unknown_query_and_an_existing_model_are_refused(text_refuses, model, text):
    text_refuses("word", "explain", model, "--query", "zebra", value="zebra")
    text_refuses("--out", "train", "--data", text, "--out", model, names="--overwrite")


SMALL = ("--batch", 4, "--length", 8, "--eta-y", 20, "--eta-z", 2, "--device", "cpu")


@pytest.mark.parametrize(
    "words",
    [
        ("--resume", "--max-words", 6),  # another vocabulary
        ("--resume", "--max-words", 6, "--tensorboard", "events"),
        ("--overwrite", "--layers", 0),
        ("--overwrite", "--steps", 3, "--epochs", 3),
        ("--overwrite", "--batch", 10_000),  # seen only when the text is there
        ("--overwrite", "--seed", "9" * 60),
        ("--resume", "--steps", 1),  # more are done
    ],
)
def test_a_refused_training_leaves_everything_as_it_was(text_command, model, text, tmp_path, monkeypatch, words):
    from scansnap.text import tensorboard as events

    monkeypatch.setattr(events, "_summary_writer", lambda *_: lambda name: Path(name).mkdir())
    (tmp_path / "new").mkdir()
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file() and "cache" not in p.parts}
    steps = () if "--steps" in words else ("--steps", 40)
    code, _, err = text_command("train", "--data", text, *SMALL, *steps, *words, "--out", model)
    assert code == 2, err
    code, _, err = text_command("train", "--data", text, *SMALL, *steps, *words, "--out", "new/er/n.safetensors")
    assert code == 2, err
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file() and "cache" not in p.parts} == before
    assert list((tmp_path / "new").iterdir()) == []
    assert text_command("explain", model, "--query", "cat")[0] == 0


def test_an_infinite_loss_leaves_the_old_model_and_says_so(text_command, model, text, tmp_path):
    before = model.read_bytes()
    words = ("train", "--data", text, "--batch", 4, "--length", 8, "--eta-y", "1e38", "--eta-z", "1e38",
             "--device", "cpu", "--steps", 40)  # fmt: skip
    code, _, err = text_command(*words, "--overwrite", "--out", model)
    assert code == 1
    assert "m.safetensors is unchanged" in err
    assert model.read_bytes() == before
    assert text_command("explain", model, "--query", "cat")[0] == 0
    code, _, err = text_command(*words, "--out", "n.safetensors")
    assert code == 1
    assert "Nothing was written" in err
    assert not (tmp_path / "n.safetensors").exists()


def test_a_training_killed_before_its_first_checkpoint_leaves_the_old_model(text_command, model, text, tmp_path):
    code = "import os\nfrom unittest.mock import patch\nfrom scansnap.text.training import _TrainingLoop\n"
    code += "patch.object(_TrainingLoop, '_batch', lambda *_: os.kill(os.getpid(), 9)).start()\n"
    code += "from scansnap.cli.app import main\nmain()"
    before = model.read_bytes()
    words = [*map(str, ("text", "train", "--data", text, *SMALL, "--steps", 40, "--max-words", 6, "--overwrite"))]
    done = subprocess.run([sys.executable, "-c", code, *words, "--out", model], cwd=tmp_path, check=False)
    assert done.returncode == -9
    assert model.read_bytes() == before
    assert text_command("explain", model, "--query", "cat")[0] == 0


def test_every_setting_of_a_model_is_an_option(text_command, text, tmp_path):
    words = ("train", "--data", text, "--steps", 2, "--batch", 4, "--length", 8, "--device", "cpu")
    code, _, err = text_command(*words, "--model", "transformer", "--width", 12, "--heads", 3, "--norm", "pre",
                                "--residual", "false", "--no-bias", "--clip", "none", "--init", 0.2,
                                "--out", "t.safetensors")  # fmt: skip
    assert code == 0, err
    saved = read_header(tmp_path / "t.safetensors").model
    expected = {"width": 12, "heads": 3, "norm": "pre", "residual": False, "bias": False, "clip": None, "init": 0.2}
    assert {name: saved[name] for name in expected} == expected
    code, _, err = text_command(*words, "--layers", 2, "--eta-y", "20,10", "--residual", "plain", "--out",
                                "y.safetensors")  # fmt: skip
    assert code == 0, err
    saved = read_header(tmp_path / "y.safetensors").model
    assert (saved["eta_y"], saved["eta_z"], saved["residual"], saved["init"]) == ([20, 10], [2, 1], "plain", "uniform")


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (("--model", "transformer", "--rank", 3), "--rank"), (("--width", 3), "--width"), (("--norm", "post"), "norm"),
        (("--model", "transformer", "--norm", "l2"), "norm"),
        (("--model", "transformer", "--residual", "plain"), "residual"), (("--layers", "two"), "layers"),
        (("--eta-y", -1), "eta_y"),
    ],
)  # fmt: skip
def test_a_setting_that_a_model_does_not_have_is_refused(text_refuses, text, tmp_path, words, field):
    text_refuses(field, "train", "--data", text, *words)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("given", [{}, {"layers": 2}])
@pytest.mark.parametrize(("words", "device"), [(500, "cpu"), (50_000, "cuda")])
def test_defaults_of_the_command_are_told_where_they_are_not_those_of_the_settings(kind, given, words, device):
    """What the help does not tell apart is what the settings say."""
    plain = {"layers": 2, "init": "uniform"} if kind == "yz" and given else given
    ours, theirs = model_settings(kind, given, words, device).to_dict(), KINDS[kind](words, **plain).to_dict()
    assert {name for name in ours if ours[name] != theirs[name]} <= set(DEFAULTS[kind])
    options = model_specs(*KINDS)
    for name, default in DEFAULTS[kind].items():
        assert f"default: {default}" in options[name].help + options[name].summary
