#!/usr/bin/env python3
"""Says whether transformers reads every tensor of a DiffusionGemma folder and misses none.

Run: python scripts/check_diffusion_export.py FOLDER; needs torch and transformers.
"""

import sys

import torch
from transformers.models.diffusion_gemma import DiffusionGemmaForBlockDiffusion


def main():
    model, info = DiffusionGemmaForBlockDiffusion.from_pretrained(
        sys.argv[1], output_loading_info=True
    )
    wrong = {kind: sorted(names) for kind, names in info.items() if names}
    for kind, names in wrong.items():
        print(f"{kind}: {names}")
    with torch.no_grad():
        ids = torch.arange(4, 16)[None]
        logits = model(input_ids=ids, decoder_input_ids=ids[:, :4]).logits
    is_finite = bool(torch.isfinite(logits).all())
    print("logits are finite" if is_finite else "logits are NOT finite")
    sys.exit(1 if wrong or not is_finite else 0)


main()
