"""The examples of docs/attach.md run as they stand, after the preparations that they leave to the reader."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import IDS, M, Plain, gpt2, loss_of
from torch.utils.data import DataLoader

import scansnap as ss

PAGE = (Path(__file__).parents[3] / "docs" / "attach.md").read_text(encoding="utf-8")
STEPS = 3


def example(heading: str) -> str:
    (snippet,) = re.findall(rf"^## {heading}\n.*?^```text\n(.*?)^```$", PAGE, flags=re.M | re.S)
    return snippet


def trained(heading: str, names: dict[str, Any], after: str = "") -> list[int]:
    """The steps in the file of an example with these names."""
    exec(example(heading) + after, {"ss": ss, "ids": IDS} | names)
    return ss.load("probe.zarr").step.values.tolist()


@pytest.mark.filterwarnings("ignore:.isinstance\\(treespec, LeafSpec\\).", "ignore:.*does not have many workers")
@pytest.mark.parametrize("heading", ["Hugging Face Trainer", "Lightning", "accelerate"])
def test_every_example_measures_all_due_steps(heading: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert globals()[f"run_{heading.split()[-1].lower()}"](heading) == list(range(STEPS + 1))


def run_trainer(heading: str) -> list[int]:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate", reason="the Trainer needs accelerate")
    args = transformers.TrainingArguments(
        "out", max_steps=STEPS, per_device_train_batch_size=2, use_cpu=True, report_to=[], save_strategy="no",
        disable_tqdm=True, dataloader_pin_memory=False,
    )  # fmt: skip

    def tokenizer(texts: list[str], return_tensors: str, padding: bool) -> Any:
        return transformers.BatchEncoding({"input_ids": IDS, "attention_mask": torch.ones_like(IDS)})

    data = [{"input_ids": row, "labels": row} for row in torch.randint(M, (8, 9))]
    names = {"model": gpt2(), "tokenizer": tokenizer, "texts": [""], "args": args, "data": data,
             "Trainer": transformers.Trainer}  # fmt: skip
    return trained(heading, names, "trainer.train()")


def run_lightning(heading: str) -> list[int]:
    lightning = pytest.importorskip("lightning.pytorch")

    class Language(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = Plain()

        def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:
            return loss_of(self.model, batch)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters())

    def trainer(max_steps: int, callbacks: list[Any]) -> Any:
        return lightning.Trainer(
            max_steps=STEPS, callbacks=callbacks, accelerator="cpu", logger=False, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False,
        )  # fmt: skip

    names = {"module": Language(), "Trainer": trainer, "loader": DataLoader(torch.randint(M, (24, 9)), batch_size=3)}
    return trained(heading, names, "trainer.fit(module, loader)")


def run_accelerate(heading: str) -> list[int]:
    accelerate = pytest.importorskip("accelerate")
    model = Plain()
    loader = DataLoader(torch.randint(M, (2 * STEPS, 9)), batch_size=2)
    names = {"accelerator": accelerate.Accelerator(cpu=True), "model": model, "loader": loader,
             "optimizer": torch.optim.AdamW(model.parameters())}  # fmt: skip
    return trained(heading, names)
