#!/usr/bin/env python3
"""The same training loop with transformers (eager, sdpa attention, fused AdamW, clipping), or with PEFT's adapters.

Prints one JSON object: seconds from process start to the end of the first optimizer step, median
seconds of the later steps, tokens per second and peak resident memory in MB.
"""

import argparse
import json
import os
import resource
import statistics
import time


def seconds_since_process_start():
    with open("/proc/self/stat") as stat:
        ticks = int(stat.read().rsplit(")", 1)[1].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", required=True, help="folder with a config.json")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--lora-rank", type=int, default=0, help="train PEFT's adapters of all projections")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"], help="of the weights")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--device", default="cpu", help="cuda: the first GPU")
    arguments = parser.parse_args()

    import torch
    import transformers

    torch.set_num_threads(arguments.threads)
    config = transformers.AutoConfig.from_pretrained(arguments.config)
    with torch.device(arguments.device):  # where the weights are drawn
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    model = model.to(getattr(torch, arguments.dtype))
    if arguments.lora_rank:
        import peft

        modules = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
        adapters = peft.LoraConfig(r=arguments.lora_rank, lora_alpha=4 * arguments.lora_rank, target_modules=modules)
        model = peft.get_peft_model(model, adapters)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-3, weight_decay=0.01, fused=True)
    model.train()
    torch.manual_seed(0)
    seconds, first = [], None
    for _ in range(arguments.steps):
        tokens = torch.randint(0, config.vocab_size, (arguments.batch, arguments.length + 1), device=arguments.device)
        begin = time.perf_counter()
        logits = model(input_ids=tokens[:, :-1], use_cache=False).logits.float()
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if arguments.device != "cpu":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
        if first is None:
            first = seconds_since_process_start()
    median = statistics.median(seconds[3:] or seconds)
    print(
        json.dumps(
            {
                "first_step_seconds": first,
                "step_seconds": median,
                "tokens_per_second": arguments.batch * arguments.length / median,
                "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            }
        )
    )


if __name__ == "__main__":
    main()
