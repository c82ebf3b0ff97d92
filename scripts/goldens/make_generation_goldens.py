#!/usr/bin/env python3
"""Makes tests/golden/generation.json: what transformers' generate() writes behind prompts, and
tests/golden/token_choice.json: how it chooses tokens.

    make_generation_goldens.py [--choices]

With --choices the second file alone: for settings of a GenerationConfig, the tokens of a few steps
and, where these are drawn, the probabilities at every step, of tokens that have any.

For every folder of tests/golden that transformers loads as a causal language model of its own:
a list of {"prompt", "written"}, token ids of 24 greedy steps (fewer where the model has learned no
more positions), one prompt at a time, float32 on a CPU, one thread, eager attention, without a
cache: some caches give other tokens than the same model's whole sequences. Random weights often
repeat one token; prompts are taken after which they do not, and whose steps' two best tokens are
never closer than 1e-4.
"""

import json
import pathlib
import sys

import torch
import transformers

NUM_NEW = 24
LENGTHS = (7, 1, 12)


def written_behind(model, prompt, num_new):
    """Tokens behind the prompt, and the least distance of the best two logits of a step."""
    out = model.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        max_new_tokens=num_new,
        use_cache=False,
        do_sample=False,
        num_beams=1,
        eos_token_id=None,
        pad_token_id=0,
        output_logits=True,
        return_dict_in_generate=True,
    )
    best = [step[0].float().topk(2).values for step in out.logits]
    least = min(float(values[0] - values[1]) for values in best)
    return out.sequences[0, len(prompt):].tolist(), least


def samples_of(folder):
    config = transformers.AutoConfig.from_pretrained(folder)
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    if info["missing_keys"]:
        raise ValueError(f"lacks {sorted(info['missing_keys'])[0]}")
    model.eval()
    text = config.get_text_config()
    learned = getattr(text, "n_positions", None) or NUM_NEW + max(LENGTHS)
    num_new = min(NUM_NEW, learned - max(LENGTHS))
    generator = torch.Generator().manual_seed(1)
    samples = []
    for length in LENGTHS:
        tried = []
        for _ in range(12):
            prompt = torch.randint(1, text.vocab_size, (length,), generator=generator).tolist()
            tokens, least = written_behind(model, prompt, num_new)
            if len(tokens) == num_new and least >= 1e-4:
                tried.append((len(set(tokens)), prompt, tokens))
        if not tried:
            return None
        _, prompt, tokens = max(tried)
        samples.append({"prompt": prompt, "written": tokens})
    return samples


CHOICE_FAMILY = "cohere_biases"  # writes many different tokens
CHOICES = [
    {"do_sample": True, "temperature": 0.7, "top_k": 5},
    {"do_sample": True, "top_p": 0.3, "top_k": 0},
    {"do_sample": True, "temperature": 0.5, "min_p": 0.6, "top_k": 0},
    {"do_sample": True, "temperature": 0.4, "top_k": 20, "top_p": 0.5, "repetition_penalty": 1.3},
    {"do_sample": True, "temperature": 1.6},
    {"do_sample": False, "repetition_penalty": 1.5},
    {"do_sample": False, "repetition_penalty": 0.6},
]


def choices_of(folder):
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    )
    model.eval()
    vocab = model.config.get_text_config().vocab_size
    generator = torch.Generator().manual_seed(3)
    samples = []
    for settings in CHOICES:
        prompt = torch.randint(1, vocab, (5,), generator=generator).tolist()
        torch.manual_seed(7)
        out = model.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            max_new_tokens=6 if settings["do_sample"] else NUM_NEW,
            use_cache=False,
            eos_token_id=None,
            pad_token_id=0,
            output_scores=True,
            return_dict_in_generate=True,
            **settings,
        )
        sample = {
            "settings": settings,
            "prompt": prompt,
            "written": out.sequences[0, len(prompt):].tolist(),
        }
        if settings["do_sample"]:
            steps = [scores[0].float().softmax(0) for scores in out.scores]
            sample["probabilities"] = [
                [[i, round(p, 8)] for i, p in enumerate(step.tolist()) if p > 0] for step in steps
            ]
        samples.append(sample)
    return samples


def write_choices(root):
    lines = [f" {json.dumps(sample)}" for sample in choices_of(root / CHOICE_FAMILY)]
    (root / "token_choice.json").write_text("[\n" + ",\n".join(lines) + "\n]\n")


def main():
    torch.set_num_threads(1)
    root = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden"
    write_choices(root)
    if "--choices" in sys.argv[1:]:
        return
    all_samples = {}
    for folder in sorted(root.iterdir()):
        if not (folder / "reference.safetensors").exists():
            continue
        try:
            samples = samples_of(folder)
        except Exception as error:  # not transformers' own, or not causal
            print(f"{folder.name}: {type(error).__name__}: {str(error)[:90]}", file=sys.stderr)
            continue
        if samples is None:
            print(f"{folder.name}: too close", file=sys.stderr)
            continue
        all_samples[folder.name] = samples
        print(f"{folder.name}: {[len(set(s['written'])) for s in samples]}")
    lines = [f" {json.dumps(name)}: {json.dumps(samples)}" for name, samples in all_samples.items()]
    (root / "generation.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
