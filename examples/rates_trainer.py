"""A faster query/key learning rate in a Hugging Face Trainer: ``optimizers=(optimizer, schedule)``.

Run it: python examples/rates_trainer.py
"""

import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed
from transformers.utils import logging

import scansnap as ss

STEPS = 20

if __name__ == "__main__":
    set_seed(0)
    logging.set_verbosity_error()
    rows = torch.randint(0, 50, (64, 31))
    data = [{"input_ids": row, "labels": row} for row in rows]
    model = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=31, n_embd=32, n_layer=2, n_head=2, bos_token_id=0,
                                       eos_token_id=0))  # fmt: skip
    ratios = {"qk": ss.rates.Ratio(2.0, start=0.25), "norm": 0.5}  # query/key at twice the rate after a quarter
    print(ss.describe_groups(model, lr=3e-3, **ratios))
    optimizer = torch.optim.AdamW(ss.param_groups(model, lr=3e-3, **ratios))
    schedule = ss.rates.ratio_schedule(optimizer, STEPS, "warmup(5) cosine(0.1)")
    with tempfile.TemporaryDirectory() as folder:
        settings = TrainingArguments(folder, max_steps=STEPS, per_device_train_batch_size=8, report_to=[], use_cpu=True,
                                     save_strategy="no", disable_tqdm=True, log_level="error")  # fmt: skip
        trainer = Trainer(model, settings, train_dataset=data, optimizers=(optimizer, schedule))
        trainer.train()
    print({role: round(rate, 6) for role, rate in ss.rates.rates_by_role(optimizer).items()})
