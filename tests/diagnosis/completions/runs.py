"""Runs as lists of samples, healthy and sick ones, and the dumps that frameworks would write of them."""

import json
import random

from springtide.diagnosis.completions.sample import Sample

TEXT = """so the number of apples that remain after each child takes two is what we look for and we count them first by
adding all baskets then we divide the sum between seven friends who wait under an old tree near river bridge while
trains pass slowly every hour carrying coal stone timber paper glass sugar salt pepper beans rice corn wheat barley"""
WORDS = TEXT.split()


def prose(rng, words):
    return " ".join(rng.choice(WORDS) for _ in range(words))


def run(write, *, steps=10, groups=8, members=4, seed=0):
    """Samples of `write(rng, step share, group, member) -> dict` with at least a text."""
    rng = random.Random(seed)
    found = []
    for step in range(steps):
        for group in range(groups):
            prompt = f"Question {step}.{group}: " + prose(rng, 12)
            for member in range(members):
                made = write(rng, step / (steps - 1), group, member)
                found.append(Sample(**({"step": step, "group": f"{step}.{group}", "prompt": prompt} | made)))
    return found


def healthy(rng, share, group, member):
    right = rng.random() < 0.3 + 0.5 * share
    answer = 7 if right else rng.randint(10, 99)
    text = f"{prose(rng, rng.randint(40, 90))}. The answer is \\boxed{{{answer}}}."
    return {"text": text, "reward": float(right), "truth": "7", "parsed": True}


def write_verl(folder, samples):
    folder.mkdir(parents=True, exist_ok=True)
    for step in sorted({sample.step for sample in samples}):
        rows = [
            {
                "input": each.prompt,
                "output": each.text,
                "gts": each.truth,
                "score": each.reward,
                "step": step,
                "acc": 1.0,
            }
            for each in samples
            if each.step == step
        ]
        (folder / f"{step}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder
