"""A faster query/key learning rate in Lightning: ``configure_optimizers`` returns the optimiser and the schedule.

Run it: python examples/rates_lightning.py
"""

import lightning
import torch
import torch.nn.functional as F
from torch import nn

import scansnap as ss

STEPS = 20


class Classifier(lightning.LightningModule):
    """One layer of torch's own, whose in_proj_weight holds queries, keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 32)
        self.layer = nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0, batch_first=True)
        self.head = nn.Linear(32, 50)

    def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:
        logits = self.head(self.layer(self.embed(batch)))
        return F.cross_entropy(logits.flatten(0, 1), batch.roll(-1, 1).flatten())

    def configure_optimizers(self) -> dict:
        optimizer = torch.optim.AdamW(ss.param_groups(self, lr=3e-3, qk=ss.rates.Ratio(2.0, start=0.25)))
        schedule = ss.rates.ratio_schedule(optimizer, STEPS)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


if __name__ == "__main__":
    lightning.seed_everything(0, verbose=False)
    loader = torch.utils.data.DataLoader(torch.randint(0, 50, (160, 31)), batch_size=8)
    model = Classifier()
    print(ss.describe_groups(model, lr=3e-3, qk=2.0))
    trainer = lightning.Trainer(max_steps=STEPS, accelerator="cpu", logger=False, enable_checkpointing=False,
                                enable_progress_bar=False, enable_model_summary=False)  # fmt: skip
    trainer.fit(model, loader)
    print({role: round(rate, 6) for role, rate in ss.rates.rates_by_role(trainer.optimizers[0]).items()})
