"""A faster query/key learning rate with accelerate: prepare model, optimiser and schedule as usual.

Run it: python examples/rates_accelerate.py
"""

import torch
from accelerate import Accelerator
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM, set_seed

import scansnap as ss

STEPS = 20

if __name__ == "__main__":
    set_seed(0)
    model = GPTNeoXForCausalLM(GPTNeoXConfig(vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
                                             intermediate_size=64, max_position_embeddings=31))  # fmt: skip
    optimizer = torch.optim.AdamW(ss.param_groups(model, lr=3e-3, qk=2.0, upper=ss.rates.Ratio(0.25, end=0.5)))
    schedule = ss.rates.ratio_schedule(optimizer, STEPS)
    accelerator = Accelerator(cpu=True)
    model, optimizer, schedule = accelerator.prepare(model, optimizer, schedule)
    rows = torch.randint(0, 50, (STEPS, 8, 31))
    for ids in rows:
        optimizer.zero_grad()
        accelerator.backward(model(input_ids=ids, labels=ids).loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    print({role: round(rate, 6) for role, rate in ss.rates.rates_by_role(optimizer).items()})
