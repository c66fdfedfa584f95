"""The golden files and the script that makes them agree, on every engine."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

import scansnap as ss
from repository_scripts import load_script
from scansnap.kernels.cpu import library

FOLDER = Path(__file__).parent
FILES = sorted(path.stem for path in FOLDER.glob("*.json"))
# 12 steps of float64 in another order of summation: about 1e-13; a changed formula shows at 1e-6 and above
CLOSE = {"rtol": 1e-9, "atol": 1e-12}


@pytest.fixture(scope="module")
def made():
    return load_script("tests/golden/make.py")


def stored(name):
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def test_the_script_and_the_folder_have_the_same_files(made):
    assert [*sorted([*made.SIMULATIONS, "flow", "theory"])] == FILES


@pytest.mark.parametrize("name", FILES)
def test_the_numbers_are_reproduced(made, name):
    again = made.everything()[name] if name in ("flow", "theory") else made.simulation(name)
    golden = stored(name)
    assert again.keys() == golden.keys()
    for key, numbers in golden.items():
        np.testing.assert_allclose(again[key], numbers, err_msg=f"{name}.json: {key}", **CLOSE)


@pytest.mark.skipif(not library.available(), reason="the compiled engine is not built here")
def test_the_compiled_engine_reproduces_them_in_single_precision(made):
    golden = stored("sgd")
    options = {"steps": 12, "batch_size": 16, "context": 16, "record": [0, 3, 12], "device": "cpu", "engine": "fused"}
    data = ss.simulate(ss.SequenceClasses.synthetic(**made.TINY), made.RATES, **options, **made.SIMULATIONS["sgd"])
    np.testing.assert_allclose(data.loss.values.ravel(), golden["loss"], rtol=2e-5, atol=5e-7)  # α ≈ 1 in float32
    np.testing.assert_allclose(data.entropy.mean("seq_class").values.ravel(), golden["entropy"], rtol=2e-5)


@pytest.mark.parametrize("change", ["rate", "seed", "context"])
def test_a_changed_setting_is_noticed(made, change):
    """The files can fail: what a wrong rate, seed or length does is far above the tolerance."""
    rates = {"eta_z": [0.5, 2.0], "ratio": [1.0, 5.0], "seed": [0, 1]}
    if change == "rate":
        rates["eta_z"] = [0.5001, 2.0]
    if change == "seed":
        rates["seed"] = [1, 0]
    options = {"context": math.inf if change == "context" else 16, **made.SIMULATIONS["sgd"]}
    data = ss.simulate(ss.SequenceClasses.synthetic(**made.TINY), ss.grid(**rates), steps=12, batch_size=16,
                       record=[0, 3, 12], dtype="float64", device="cpu", engine="general", **options)  # fmt: skip
    assert not np.allclose(data.loss.values.ravel(), stored("sgd")["loss"], **CLOSE)
