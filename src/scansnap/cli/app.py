"""The command line: it registers the commands, runs one, and prints errors as one line."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from io import TextIOWrapper
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from scansnap import __version__
from scansnap.checks import InputError
from scansnap.cli import bench, dial, explorer, info, probe, reproduce, run, survey, sweep, verify
from scansnap.cli.options import with_settings
from scansnap.cli.text import evaluate, explain, predict, sample, token_specs, train
from scansnap.dynamics.settings import run_settings
from scansnap.interrupt import handle_sigterm, signal_exit_code
from scansnap.processes import is_out_of_memory
from scansnap.runs import run_fields

_Misuse: Any = typer.BadParameter.__base__  # click's UsageError, of which typer may carry its own copy


def commands() -> typer.Typer:
    """All commands with the settings declared so far."""
    app = _group(
        "Simulate, predict, verify and watch how attention learns: the training dynamics of Scan and Snap.",
        "run --preset syn-small --eta-y 1 --eta-z 1 --momentum 0.9 --out out/first.zarr",
        {
            with_settings(run.run, run_fields() | run_settings()): (
                "run --preset syn-medium --set n_queries=3 --eta-z 0.5,1 --ratio 1,2 --seed 0:10",
            ),
            info.info: ("info --preset syn-small", "info --check out/run.zarr"),
            verify.verify: (
                "verify --preset textbook --eta-y 0.9 --eta-z 0.02",
                "verify --map theorem-1 --x ratio=1:1000:log --y overlap=0.01:0.9",
                "verify --map theorem-3 --sgd --points 20 --seeds 10 --finite-T 128 --out out/sgd.png",
            ),
            survey.survey: ("survey --quick", "survey joma polarisation --out out/survey"),
            reproduce.reproduce: ("reproduce all --out out", "reproduce fig6 fig11 --quick"),
            sweep.sweep: ("sweep examples/sweep.toml --out out/fig6.zarr --dry-run",),
            dial.dial: (
                "dial --list",
                "dial --quick --out out/dial",
                "dial --component norm:rms --mode single --optimizer sgd --ratio 10",
                "dial --component layers --mode cumulative --data text --corpus wikitext-2 --quick",
            ),
            bench.bench: ("bench --quick",),
            explorer.explorer: (
                "explorer --out explorer.html",
                "explorer --deck my.toml",
                "explorer --folder models --verify --no-open",
            ),
            explorer.lecture: ("lecture paper --out lecture.html", "lecture my.toml --out talk.html --overwrite"),
        },
        completion=True,
    )
    text = _group(
        "Train, explain, sample and evaluate language models.",
        "text train --out out/yz.safetensors --max-words 2000",
        {
            with_settings(train.train, token_specs() | train.training_specs() | train.model_specs(*train.KINDS)): (
                "text train --model yz --data wikitext-2 --max-words 5000 --epochs 1",
                "text train --data wikitext-2 --tokenizer bpe --vocab-size 8000",
                "text train --data books,news/2024.txt --tokenizer gpt2/tokenizer.json --model transformer",
                "text train --model transformer --batch 20 --accumulate 4 --schedule 'warmup(100) cosine' --steps 2000",
            ),
            with_settings(predict.predict, token_specs() | predict.training_specs() | train.model_specs("yz")): (
                "text predict --data wikitext-2 --query river --steps 1000 --at 100",
            ),
            explain.explain: ('text explain out/yz.safetensors --query river --context "the bank of the"',),
            sample.sample: ('text sample out/yz.safetensors --prompt "the river" --words 50',),
            evaluate.evaluate: ("text evaluate out/yz.safetensors --data wikitext-2 --mass 0.95",),
        },
    )
    app.add_typer(text, name="text")
    probes = _group(
        "Measure the attention of checkpoints, or compare two files.",
        "probe checkpoints --batch text.txt --out probe.zarr",
        {
            probe.measure: (
                "probe checkpoints --batch text.txt --out probe.zarr --report probe.html",
                r"probe runs/gpt --batch ids.npy --loader mine:load --steps step_(\d+)",
                "probe hf:EleutherAI/pythia-14m --revisions log:5 --batch text.txt --out pythia.zarr",
            ),
            probe.diff: (
                "probe diff a.zarr b.zarr",
                "probe diff a.zarr b.zarr --match similarity --seed-of-a a2.zarr --report diff.html",
            ),
        },
        cls=_MeasureByDefault,
    )
    app.add_typer(probes, name="probe")
    alias = app.command("serve", hidden=True, help="The same as explorer.", epilog="Example: scansnap serve --no-open")
    alias(explorer.explorer)
    app.callback()(_root)
    return app


def _show_version(value: bool) -> None:
    if value:
        print(f"scansnap {__version__}")
        raise typer.Exit


class _MeasureByDefault(TyperGroup):
    """``probe FOLDER`` is short for ``probe measure FOLDER``; a folder called diff is ./diff."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and not set(args) & {"--help"}:
            args = ["measure", *args]
        return super().parse_args(ctx, args)


_SHOW_VERSION = typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version and exit.")


def _root(version: Annotated[bool, _SHOW_VERSION] = False) -> None:
    pass


def _group(
    help_text: str,
    example: str,
    examples: dict[Callable[..., int], tuple[str, ...]],
    *,
    completion: bool = False,
    cls: type[TyperGroup] = TyperGroup,
) -> typer.Typer:
    """A group of commands, each with its examples."""
    app = typer.Typer(
        cls=cls,
        no_args_is_help=True,
        add_completion=completion,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        help=help_text,
        epilog=f"Example: scansnap {example}",
    )
    for command, lines in examples.items():
        app.command(epilog=f"Example: scansnap {'; scansnap '.join(lines)}")(command)
    return app


def main() -> None:
    """Entry point. Exit codes: 2 for bad input, 1 when the machine fails, 128 + signal when stopped."""
    with handle_sigterm():
        code = _call()
        try:
            sys.stdout.flush()  # here, where an error can still be printed
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the end of the process tries again
            code = code or _ended_by(error)
    sys.exit(code)


def _call() -> int:
    """Run a command; print an error of the user or of the machine as one line, without a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a file name may hold bytes that are not text
    try:
        code = commands()(standalone_mode=False) or 0
    except InputError as error:
        return _print_error(str(error.with_field(_typed_field(error.field))), 2)
    except _Misuse as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            error.show()
            return 2
        return _print_error(error.format_message().rstrip(".") + ".", 2)
    except KeyboardInterrupt:
        return signal_exit_code()
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        return _print_error("this command trains or measures a model and needs torch; pip install torch.", 2)
    except (OSError, MemoryError) as error:
        return _ended_by(error)
    except RuntimeError as error:
        if is_out_of_memory(error):
            return _ended_by(MemoryError(_torch_reason(error)))
        raise
    return signal_exit_code() if code == 130 else code


# fields of Python functions whose options have another name
_OPTIONS = {"the theorem": "--map", "word": "--query", "context": "--finite-T", "checkpoint": "--out"}


def _typed_field(field: str) -> str:
    """The option by which the user typed this field; keys of files and other names stay as they are."""
    typed = {word.partition("=")[0] for word in sys.argv}
    option = "--" + field.replace("_", "-")
    return next((name for name in (option, _OPTIONS.get(field, field)) if name in typed), field)


def _ended_by(error: OSError | MemoryError) -> int:
    if isinstance(error, BrokenPipeError):  # the reader of the output is gone
        return 141
    if isinstance(error, MemoryError):
        hint = "choose smaller settings: batch size, context, runs or recorded steps"
        return _print_error(f"there is not enough memory ({str(error) or 'none is left'}); {hint}.", 1)
    return _print_error(str(error), 1)


def _torch_reason(error: RuntimeError) -> str:
    """The part of torch's message about the allocation."""
    match = re.search(r"tried to allocate [^.,]*(\.\d+ \w+|bytes)|Storage size[^\n]*", str(error), re.IGNORECASE)
    return f"torch {match[0][0].lower()}{match[0][1:]}" if match else "torch could not allocate a tensor"


def _print_error(sentence: str, code: int) -> int:
    with suppress(OSError):
        print("Error:", " ".join(sentence.split()), file=sys.stderr)
    return code
