"""A probe in a Hugging Face Trainer: one callback. Any model of transformers works; this one is tiny and untrained.

Run it: python examples/probe_trainer.py; it writes probe.zarr.
"""

import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed
from transformers.utils import logging

import scansnap as ss
from scansnap.probe.findings import summary
from scansnap.probe.hf import ProbeCallback

TEXT = "the cat sat on the mat and the old dog ran to the cat; the cat saw it and ran to the old mat. " * 40
WORDS = sorted(set(TEXT))  # letters are the words here; else: tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
T = 31

if __name__ == "__main__":
    set_seed(0)
    logging.set_verbosity_error()
    ids = torch.tensor([WORDS.index(letter) for letter in TEXT])
    rows = ids[: len(ids) // T * T].reshape(-1, T)
    data = [{"input_ids": row, "labels": row} for row in rows[8:]]
    model = GPT2LMHeadModel(GPT2Config(vocab_size=len(WORDS), n_positions=T, n_embd=32, n_layer=2, n_head=2,
                                       bos_token_id=0, eos_token_id=0))  # fmt: skip

    probe = ss.Probe(model, {"input_ids": rows[:8]}, corpus=rows, every="log:10", out="probe.zarr", words=WORDS)
    with tempfile.TemporaryDirectory() as folder:
        settings = TrainingArguments(folder, max_steps=60, per_device_train_batch_size=8, learning_rate=3e-3,
                                     logging_steps=10, report_to=[], save_strategy="no", use_cpu=True,
                                     disable_tqdm=True, log_level="error")  # fmt: skip
        Trainer(model, settings, train_dataset=data, callbacks=[ProbeCallback(probe)]).train()
    print(summary(probe.dataset()))
