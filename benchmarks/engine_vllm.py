"""The vLLM side of the engine benchmark; runs in vLLM's environment and imports nothing of ours.

Arguments: model folder, threads, `wall` or `cpu` time, `eager` or `compiled`. Reads one JSON request per line,
`{"prompts": [turn][session], "new": [session]}`, and answers `ANSWER [seconds, tokens served from the prefix cache]`;
when it is ready, `ANSWER [its version]`.
"""

import json
import os
import sys
import time


def main() -> None:
    folder, threads, clock, mode = sys.argv[1:5]
    now = time.process_time if clock == "cpu" else time.perf_counter
    os.environ |= {
        "VLLM_CPU_KVCACHE_SPACE": "2",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": threads,
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_LOGGING_LEVEL": "ERROR",
    }
    import torch
    import vllm
    from vllm import LLM, SamplingParams

    torch.set_num_threads(int(threads))
    engine = LLM(
        model=folder,
        skip_tokenizer_init=True,
        dtype="float32",
        enforce_eager=mode == "eager",
        enable_prefix_caching=True,
        max_num_seqs=64,
        max_num_batched_tokens=8192,
        block_size=32,
        disable_log_stats=False,
    )
    print("ANSWER " + json.dumps([vllm.__version__]), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        started = now()
        settings = [
            SamplingParams(max_tokens=new, temperature=1.0, ignore_eos=True, detokenize=False) for new in request["new"]
        ]
        paths: list[list[int]] = [[] for _ in request["new"]]
        hits = 0
        for turn in request["prompts"]:
            paths = [path + prompt for path, prompt in zip(paths, turn, strict=True)]
            outputs = engine.generate([{"prompt_token_ids": path} for path in paths], settings, use_tqdm=False)
            hits += sum(output.num_cached_tokens or 0 for output in outputs)
            paths = [path + list(output.outputs[0].token_ids) for path, output in zip(paths, outputs, strict=True)]
        seconds = now() - started
        # The next repetition presents the same prompts: nothing may be left of this one.
        engine.reset_prefix_cache()
        print("ANSWER " + json.dumps([seconds, hits]), flush=True)


if __name__ == "__main__":
    main()
