"""A setting, a norm, an optimiser is added in one place and is then everywhere; and taken away again."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

import scansnap as ss
from refusals import bad_values, refused
from scansnap import runs
from scansnap.checks import InputError
from scansnap.cli.app import commands
from scansnap.cli.reference import reference, table
from scansnap.cli.run import find_run
from scansnap.dynamics import norms, optimizers
from scansnap.dynamics import settings as declarations
from scansnap.explorer.controls import BY_NAME, controls
from scansnap.runs import run_fields
from scansnap.settings import (
    Page,
    SettingSpec,
    check_arguments,
    check_fields,
    format_value,
    parse_number,
    parse_numbers,
    setting,
    settings_of,
)
from scansnap.sweep.config import Axes, from_table

SWEEP: dict[str, Any] = {"classes": {"preset": "syn-small"}, "grid": {"eta_z": 1, "eta_y": 1}}
Command = Callable[..., tuple[int, str, str]]


# --- one place ----------------------------------------------------------------------------------------------------


@pytest.fixture
def command_tree() -> Callable[..., Any]:
    """The commands with the settings that are registered when it is called."""
    return lambda **options: typer.main.get_command(commands())(**options)


@pytest.fixture
def dummies() -> Iterator[None]:
    """A norm and an update rule, through the registries, for the time of a test."""
    norms.register_norm("dummy-norm", norms.NORMS["l2"])
    optimizers.register_optimizer("dummy-rule", optimizers.RULES["sgd"])
    yield
    del norms.NORMS["dummy-norm"], optimizers.RULES["dummy-rule"]


@pytest.fixture
def dummy_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A setting: one more field of the model."""

    @dataclass(frozen=True)
    class Wider(declarations.ModelConfig):
        sharpness: float = setting(0.25, "How sharp the dummy is.", unit="dummies", above=0, most=8)

    monkeypatch.setattr(declarations, "ModelConfig", Wider)
    monkeypatch.setattr("scansnap.cli.reference.ModelConfig", Wider)


@pytest.fixture
def dummy_field(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run field: one more column."""

    @dataclass(frozen=True)
    class Wider(runs.Runs):
        tilt: Any = setting(0.5, "How much a dummy run is tilted.", per_run=float, least=0, below=2)

    monkeypatch.setattr(runs, "Runs", Wider)
    monkeypatch.setattr("scansnap.sweep.config.Runs", Wider)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, dict[str, Any]]]:
    """What the command ``run`` asks of ``simulate``: runs and options."""
    calls: list[tuple[Any, dict[str, Any]]] = []

    def simulate(classes: Any, runs: Any, **options: Any) -> None:
        calls.append((runs, options))
        raise InputError("the dummy", 1, "at an end")

    monkeypatch.setattr("scansnap.dynamics.simulate.simulate", simulate)
    return calls


@pytest.mark.parametrize(
    ("option", "name", "known"), [("norm", "dummy-norm", "layernorm"), ("optimizer", "dummy-rule", "muon")]
)
def test_what_is_registered_is_everywhere(
    dummies: None, scansnap: Command, tmp_path: Path, option: str, name: str, known: str
) -> None:
    assert scansnap("run", f"--{option}", name, "--steps", 1, "--no-figure")[0] == 0
    assert name in scansnap("run", "--help")[1]
    assert name in scansnap("text", "train", "--help")[1]
    (tmp_path / "r.toml").write_text(f'[run]\n{option} = "{name}"\n')
    assert find_run(tmp_path / "r.toml", {})[2] == {option: name}
    assert scansnap("run", "r.toml", "--steps", 1, "--no-figure", "--out", "two.zarr")[0] == 0
    swept = from_table(SWEEP | {"run": {option: name}}).settings
    assert name in (swept.model.norm, swept.optimizer_y.name)
    assert name in (BY_NAME[option].options or ())
    assert BY_NAME[option].check(name) == name
    assert name in reference()
    with refused(option, "none of them", names=(known, name)):
        declarations.settings({option: "none of them"})


@pytest.mark.parametrize(("option", "name"), [("norm", "dummy-norm"), ("optimizer", "dummy-rule")])
def test_what_is_taken_away_is_nowhere(
    scansnap: Command, refuses: Callable[..., object], option: str, name: str
) -> None:
    refuses(option, "run", f"--{option}", name, value=name)
    assert name not in scansnap("run", "--help")[1] + scansnap("text", "train", "--help")[1]
    assert name not in (BY_NAME[option].options or ())
    assert name not in reference()


def test_a_declared_setting_is_everywhere(
    dummy_setting: None, asked: list[Any], scansnap: Command, refuses: Callable[..., object], tmp_path: Path
) -> None:
    assert declarations.settings({"sharpness": 2}).model.sharpness == 2.0  # type: ignore[attr-defined]
    with refused("sharpness"):
        declarations.settings({"sharpness": 9})
    shown_help = " ".join(scansnap("run", "--help")[1].split())
    assert "--sharpness <float> How sharp the dummy is. [a float > 0 and ≤ 8 (dummies); default: " \
           "0.25]" in shown_help  # fmt: skip
    scansnap("run", "--sharpness", "2.5")
    assert asked[0][1]["model"].sharpness == 2.5
    refuses("sharpness", "run", "--sharpness", "dull")
    (tmp_path / "r.toml").write_text("[run]\nsharpness = 3\n")
    assert find_run(tmp_path / "r.toml", {})[2] == {"sharpness": 3}
    assert from_table(SWEEP | {"run": {"sharpness": 3}}).options["model"].sharpness == 3.0
    control = {one.name: one for one in controls()}["sharpness"].to_dict()
    assert (control["label"], control["kind"], control["default"], control["most"]) == ("Sharpness", "number", 0.25, 8)
    row = "| `sharpness` | How sharp the dummy is. | a float > 0 and ≤ 8 (dummies) | `0.25` |"
    assert row in reference()


def test_a_declared_run_field_is_everywhere(
    dummy_field: None, asked: list[Any], scansnap: Command, tmp_path: Path
) -> None:
    made: Any = ss.grid(eta_y=1, eta_z=1, tilt=[0, 1])
    assert made.tilt.tolist() == [0.0, 1.0]
    with refused("tilt"):
        ss.grid(eta_y=1, eta_z=1, tilt=2)
    scansnap("run", "--tilt", "0.5,1", "--seed", "3:5")
    assert (asked[0][0].tilt.tolist(), asked[0][0].seed.tolist()) == ([0.5, 1.0, 0.5, 1.0], [3, 3, 4, 4])
    assert "How much a dummy run is tilted." in " ".join(scansnap("run", "--help")[1].split())
    (tmp_path / "r.toml").write_text("[run]\ntilt = [0, 1]\n")
    assert find_run(tmp_path / "r.toml", {})[1]["tilt"] == [0, 1]
    taken: Any = Axes.of({"eta_y": 1, "eta_z": 1, "tilt": [0.25, 0.5]}).take(0, 2)
    assert taken.tilt.tolist() == [0.25, 0.5]
    left_out: Any = Axes.of({"eta_y": 1, "eta_z": 1}).take(0, 1)
    assert left_out.tilt.tolist() == [0.5]
    assert "tilt" in {one.name for one in controls()}
    assert "| `tilt` | How much a dummy run is tilted. | a float ≥ 0 and < 2 | `0.5` |" in reference()


def test_without_its_declaration_it_is_nowhere(scansnap: Command) -> None:
    with refused("sharpness", 2):
        declarations.settings({"sharpness": 2})
    assert "--sharpness" not in scansnap("run", "--help")[1]
    assert scansnap("run", "--sharpness", 2)[0] == 2
    with refused("sharpness", 3):
        from_table(SWEEP | {"run": {"sharpness": 3}})
    assert "sharpness" not in {one.name for one in controls()}
    assert "sharpness" not in reference()
    assert "tilt" not in run_fields()


def test_the_reference_in_the_docs_is_what_is_declared() -> None:
    written = (Path(__file__).parents[1] / "docs" / "settings.md").read_text(encoding="utf-8")
    assert written == reference(), "make it anew: scansnap info --settings > docs/settings.md"


def test_the_reference_is_printed_by_the_command(scansnap: Command) -> None:
    assert scansnap("info", "--settings") == (0, reference(), "")


# --- one knob -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Lamp:
    """Something with a setting of each kind."""

    watts: float = setting(40.0, "Power.", unit="W", above=0, most=100)
    bulbs: int = setting(1, "How many.", least=1)
    colour: str = setting("white", "Its light.", choices=("white", "red"))
    lit: bool = setting(False, "Whether it is on.")
    timer: int | None = setting(None, "Minutes until it goes out.", least=1, page=None)
    reach: float = setting(3, "How far it shines.", least=1, allow_inf=True)
    curve: float | tuple[float, ...] = setting(1.0, "Brightness by hour.", multiple=True)
    parts: tuple[str, ...] = setting(("foot",), "What comes with it.", choices=("foot", "shade"), multiple=True)
    name: str = setting("lamp", "How it is called.", name="called", accepts="a name")

    def __post_init__(self) -> None:
        check_fields(self)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"watts": 60}, 60.0), ({"bulbs": 3}, 3), ({"colour": "red"}, "red"), ({"lit": True}, True),
        ({"timer": None}, None), ({"timer": "none"}, None), ({"timer": 5}, 5), ({"reach": "inf"}, math.inf),
        ({"reach": math.inf}, math.inf), ({"reach": 7}, 7), ({"curve": [1, 2]}, (1.0, 2.0)), ({"curve": 2}, 2.0),
        ({"parts": "shade"}, ("shade",)), ({"parts": ["foot", "shade"]}, ("foot", "shade")),
    ],
)  # fmt: skip
def test_values_are_kept_in_their_plain_form(given: dict[str, Any], kept: Any) -> None:
    (name,) = given
    found = getattr(Lamp(**given), name)
    assert found == kept
    assert type(found) is type(kept)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        *bad_values(
            watts=[0, "60"], bulbs=[0, None], colour=["blue"], lit=[1], timer=[0], reach=["far", -math.inf],
            curve=[[1, "x"]], parts=[["cord"], 3],
        ),
    ],
)  # fmt: skip
def test_what_is_not_allowed_is_one_sentence(given: dict[str, Any], field: str) -> None:
    with refused(field):
        Lamp(**given)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("watts", "60", 60), ("watts", "2.5", 2.5), ("colour", "red", "red"), ("timer", "none", None),
        ("reach", "inf", math.inf), ("curve", "1", 1), ("curve", "1,0.5", [1, 0.5]), ("curve", "0:3", [0, 1, 2]),
        ("parts", "foot,shade", ["foot", "shade"]), ("called", "none", "none"), ("lit", "true", True),
    ],
)  # fmt: skip
def test_texts_of_the_command_line(name: str, text: str, value: Any) -> None:
    assert settings_of(Lamp)[name].read(text) == value


@pytest.mark.parametrize(("name", "text"), [("watts", "1,2"), ("bulbs", "0:3"), ("bulbs", "many"), ("curve", "1,x")])
def test_texts_that_are_no_such_value_are_refused(name: str, text: str) -> None:
    with refused(name):
        settings_of(Lamp)[name].read(text)


def test_a_reader_is_told_range_unit_and_default() -> None:
    told = {name: one.summary for name, one in settings_of(Lamp).items()}
    assert told["watts"] == "a float > 0 and ≤ 100 (W); default: 40"
    assert told["timer"] == "an integer ≥ 1, or none; default: none"
    assert told["parts"] == "any of foot, shade; default: foot"
    assert told["called"] == "a name; default: lamp"
    rows = table(settings_of(Lamp).values()).splitlines()
    assert rows[3] == "| `watts` | Power. | a float > 0 and ≤ 100 (W) | `40` |"
    assert len(rows) == 3 + len(told)


def test_parameters_of_functions_are_checked_when_it_is_called() -> None:
    @check_arguments
    def paint(
        area: Annotated[float, SettingSpec("How much.", above=0)],
        coats: Annotated[int, SettingSpec("Times.", least=1)] = 2,
    ) -> float:
        return area * coats

    assert paint(3) == 6.0
    assert paint(area=3, coats=1) == 3.0
    with refused("area"):
        paint(0)
    with refused("coats"):
        paint(1, coats=0)
    assert (settings_of(paint)["coats"].default, settings_of(paint)["coats"].kind) == (2, "integer")


@given(st.lists(st.integers(-9, 9) | st.floats(allow_nan=False), min_size=1, max_size=5))
def test_numbers_come_back_from_their_text(values: list[float]) -> None:
    assert parse_numbers("x", ",".join(map(repr, values))) == values
    assert parse_number("x", repr(values[0])) == values[0]


@pytest.mark.parametrize(("value", "text"), [(True, "true"), (None, "none"), (1.0, "1"), (1e-8, "1e-08"), ("a", "a")])
def test_defaults_as_one_would_write_them(value: Any, text: str) -> None:
    assert format_value(value) == text


def test_objects_and_flat_options_say_the_same() -> None:
    model = ss.ModelConfig(norm="none", heads=2)
    assert declarations.settings({"model": model}) == declarations.settings({"norm": "none", "heads": 2})
    assert declarations.settings({"model": model, "heads": 3}).model == ss.ModelConfig(norm="none", heads=3)
    whole = declarations.settings({"steps": 7, "model": model, "optimizer": ss.Optimizer("adam")})
    assert declarations.settings({"settings": whole}) == whole
    changed = declarations.settings({"settings": whole, "dtype": "float64"})
    assert (changed.dtype, changed.model, changed.optimizer_z.name) == ("float64", model, "adam")
    with refused("model"):
        declarations.settings({"model": "l2"})


def test_the_page_may_be_narrower_than_the_setting() -> None:
    with refused("momentum", 1.0, names="0.999"):
        BY_NAME["momentum"].check(1)
    with refused("context", "long", names=("1000000", "inf")):
        BY_NAME["context"].check("long")
    assert BY_NAME["context"].check("inf") == "inf"
    assert BY_NAME["batch_size"].to_dict()["words"] == {"none": "all"}
    assert Page().low is None
