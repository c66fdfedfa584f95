"""``scansnap text`` as a person meets it, on a text of a few hundred lines."""

import json

import pytest

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
    told = json.loads(out)
    assert told["steps"] == 5
    assert told["perplexity"] > 1
    assert {path.name for path in (tmp_path / "a").iterdir()} == {"m.safetensors"}


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
    told = json.loads(out)
    assert 0 < told["share_needed"][0] <= 1
    assert told["perplexity"] > 1
    code, out, _ = text_command("evaluate", model, "--data", text, "--device", "cpu")
    assert "perplexity with those keys only" in out


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
    before, said = model.read_bytes(), text_command("explain", model, "--query", "mat", "--json")
    found, _, err = text_command("train", "--data", text, "--steps", 40, "--batch", 4, "--length", 8, "--eta-y", 20,
                                 "--eta-z", 2, "--out", model, "--device", "cpu", *change)  # fmt: skip
    assert found == code, err
    assert model.read_bytes() == before
    assert text_command("explain", model, "--query", "mat", "--json") == said


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["train", "--model", "lstm"], "--model is 'lstm'"),
        (["train", "--out", "m.bin"], "ending in .safetensors"),
        (["train", "--data", "nowhere"], "data is"),
        (["train", "--resume", "--out", "none.safetensors"], "leave --resume out"),
        (["explain", "none.safetensors", "--query", "the"], "none.safetensors"),
    ],
)
def test_bad_input_is_one_sentence(text_command, text, tmp_path, words, sentence):
    data = [] if "--data" in words or words[0] == "explain" else ["--data", text]
    code, _, err = text_command(*words, *data)
    assert code == 2
    assert sentence in " ".join(err.split())
    assert "Traceback" not in err
    assert not list(tmp_path.glob("*.safetensors"))
    assert not list(tmp_path.glob("*.json"))


def test_an_unknown_query_and_an_existing_model_are_refused(text_command, model, text):
    code, _, err = text_command("explain", model, "--query", "zebra")
    assert code == 2
    assert "'zebra'" in err
    code, _, err = text_command("train", "--data", text, "--out", model)
    assert code == 2
    assert "--overwrite" in err
