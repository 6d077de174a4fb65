"""Consoles as frameworks print them, between the lines that are always in between."""

import json
from collections.abc import Iterable
from pathlib import Path

from diagnosis.samples.run import steps

NOISE = (
    "INFO 08-13 10:00:00 model_runner.py:900] Loading model weights took 3.1 GiB\n"
    "(RolloutWorker pid=4242) \x1b[32mINFO\x1b[0m graph capturing finished in 12 secs\n"
    "tokenizing:  57%|█████▋    | 57/100 [00:01<00:00, 51.2it/s]\n"
)


def write(path: Path, lines: Iterable[str], noise: str = NOISE) -> Path:
    path.write_text(noise + "".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def openrlhf(path: Path, count: int = 30) -> Path:
    lines = []
    for step, m in enumerate(steps(count), start=1):
        bar = f"{100 * step // count:3d}%|███       | {step}/{count} [01:10<02:20, 12.1s/it"
        lines.append(
            f"Train epoch [1/1]: {bar}, act_loss={m['loss']:.3g}, reward={m['reward']:.3g}, act_lr={m['lr']:.3g}]"
        )
        metrics = {
            "policy_loss": m["loss"],
            "entropy_loss": m["entropy"],
            "actor_lr": m["lr"],
            "actor_grad_norm": m["grad"],
            "ppo_clip_ratio": m["clip"],
            "ppo_kl": 0.0,
            "vllm_kl": m["gap"],
            "reward": m["reward"],
            "kl": m["kl"],
            "response_length": m["length"],
            "truncated": m["truncated"],
            "timing/step_total": m["seconds"],
            "rollout/reward_mean": m["reward"],
            "rollout/truncated_rate": m["truncated"],
        }
        lines.append(f"(PPOTrainer pid=77) INFO 08-13 10:01:00 ppo_trainer.py:512] ✨ Global step {step}: {metrics}")
        if step % 10 == 0:
            scores = {"eval_aime_pass1": m["reward"] / 2}
            lines.append(f"✨ Evaluation completed in 0:01:00, global_step {step}, eval_metrics: {scores}")
    return write(path, lines)


def openrlhf_bars(path: Path, count: int = 12) -> Path:
    """Before it printed steps: the bar of micro-batches alone, twice drawn."""
    lines = []
    for m in steps(count):
        for part in range(1, 5):
            short = (
                f"pg={m['loss']:.3g}, rm={m['reward'] + (part - 2.5) / 100:.6g}, ret=0.5, glen={m['length']:.6g}, "
                f"tlen=400, kl={m['kl']:.3g}, act_lr={m['lr']:.3g}"
            )
            lines.append(
                f"Train epoch [1/1]: {25 * part:3d}%|██        | {part}/4 [00:0{part}<00:03,  1.02s/it, {short}]"
            )
    return write(path, lines)


def slime(path: Path, count: int = 20, each: int = 2) -> Path:
    """`each` train steps per rollout; rollouts run one ahead."""
    lines, trained = [], 0
    head = "[2026-08-21 10:00:00]"
    for rollout, m in enumerate(steps(count)):
        sampled = {"rollout/response_len/mean": m["length"], "rollout/truncated_ratio": m["truncated"]}
        lines.append(f"{head} rollout_metrics.py:268 - perf {rollout}: {sampled | {'perf/rollout_time': 9.5}}")
        data = {"rollout/raw_reward": m["reward"], "rollout/log_probs": -0.4, "rollout/advantages": 0.0}
        lines.append(f"{head} train_metric_utils.py:46 - rollout {rollout}: {data}")
        for part in range(each):
            values = {
                "train/loss": m["loss"],
                "train/pg_loss": m["loss"],
                "train/entropy_loss": m["entropy"] + part,
                "train/pg_clipfrac": m["clip"],
                "train/ppo_kl": 0.0,
                "train/train_rollout_logprob_abs_diff": m["gap"],
                "train/grad_norm": m["grad"],
                "train/lr-pg_0": m["lr"],
                "train/step": trained,
            }
            lines.append(f"{head} model.py:918 - step {trained}: {values}")
            trained += 1
        lines.append(f"{head} train_metric_utils.py:401 - perf {rollout}: {{'perf/step_time': {m['seconds']}}}")
        if rollout % 5 == 4:
            lines.append(f"{head} rollout_metrics.py:247 - eval {rollout}: {{'eval/aime': {m['reward'] / 2}}}")
    return write(path, lines)


def prime_rl(folder: Path, count: int = 30, colon: str = "") -> tuple[Path, Path]:
    """Trainer and orchestrator; with a colon after labels before 2026."""
    trainer, orchestrator = [], []
    for step, m in enumerate(steps(count), start=1):
        stamp = f"10:00:{step % 60:02d} \x1b[1m\x1b[32mSUCCESS\x1b[0m"
        trainer.append(f"{stamp} Micro Step 1/4 | Loss{colon} 9.0000 | Entropy{colon} 9.0000")
        trainer.append(
            f"{stamp} Step {step} | {m['seconds']:.2f}s | Loss{colon} {m['loss']:.4f} "
            f"| Entropy{colon} {m['entropy']:.4f} | Mismatch KL{colon} {m['gap']:.4f} "
            f"| Grad. Norm{colon} {m['grad']:.4f} | LR{colon} {m['lr']:.2e} "
            f"| Throughput{colon} 1234 tokens/s | MFU{colon} 30.1% | Peak Mem.{colon} 70.1 GiB"
        )
        orchestrator.append(
            f"{stamp} Step {step} | 1m 5s | Reward{colon} {m['reward']:.4f} | Trainable 12/16 (75.0%) | Turns 1.0 "
            f"| Max Off-Policy 2 | Error 1.5% | Cancelled 0.0% | Truncation {100 * m['truncated']:.1f}%"
        )
    return write(folder / "trainer.stdout", trainer), write(folder / "orchestrator.stdout", orchestrator)


def roll(path: Path, count: int = 30) -> Path:
    lines = []
    for step, m in enumerate(steps(count)):
        metrics = {
            "critic/score/mean": m["reward"],
            "critic/rewards/mean": m["reward"] - m["kl"],
            "critic/entropy/mean": m["entropy"],
            "actor/ppo_ratio_clipfrac@sum": m["clip"],
            "actor/train_infer_diff_token_mean@sum": m["gap"],
            "actor/lr": m["lr"],
            "tokens/response_length/mean": m["length"],
            "time/step_total": m["seconds"],
        }
        lines.append(
            f"[2026-08-19 10:00:00] [tracking.py (161)] metrics_tag: {json.dumps({'step': step, 'metrics': metrics})}"
        )
    return write(path, lines)


def skyrl(path: Path, count: int = 30) -> Path:
    lines = []
    for step, m in enumerate(steps(count), start=1):
        metrics = {
            "generate/avg_num_tokens": m["length"],
            "policy/final_loss": m["loss"],
            "policy/grad_norm": m["grad"],
            "policy/loss_metrics/clip_ratio": m["clip"],
            "policy/policy_entropy": m["entropy"],
            "policy/policy_lr": m["lr"],
            "policy/rollout_train_logprobs_abs_diff_mean": m["gap"],
            "reward/avg_raw_reward": m["reward"],
            "timing/step": m["seconds"],
            "trainer/global_step": step,
        }
        shown = [f"'{name}': '{value:.4f}'" for name, value in metrics.items()]
        head = "(skyrl_entrypoint pid=99) "
        lines.append(f"{head}2026-08-21 10:00:00.000 | INFO     | skyrl.train.utils.tracking:log:189 - Step {step}: ")
        lines += [f"{head}{'{' if i == 0 else ' '}{text}," for i, text in enumerate(shown[:-1])]
        lines.insert(-2, "(raylet) a line of another worker")
        lines.append(f"{head} {shown[-1]}}}")
    return write(path, lines)


def nemo_rl(path: Path, count: int = 30) -> Path:
    lines = []
    for step, m in enumerate(steps(count), start=1):
        lines += ["", f"{'=' * 25} Step {step}/{count} {'=' * 25}", "▶ Training policy..."]
        if step % 10 == 0:
            lines += ["📊 Validation Results:", f"    • Accuracy: {m['reward'] / 2:.4f}"]
        lines += [
            "",
            "📊 Training Results:",
            f"  • Loss: {m['loss']:.4f}",
            f"  • Generation KL Error: {m['gap']:.4f}",
            f"  • Avg Reward: {m['reward']:.4f}",
            f"  • Mean Generation Length: {m['length']:.4f}",
            "",
            "⏱️  Timing:",
            f"  • Total step time: {m['seconds']:.2f}s",
            f"  • policy_training: {m['seconds'] / 2:.2f}s (50.0%)",
        ]
    return write(path, lines)


def areal(path: Path, count: int = 30, actor: str = "ppo_actor", pairs: int = 2) -> Path:
    """`pairs` in a row of the table: one in older versions, whose actor was grpo_actor."""
    lines = []
    for step, m in enumerate(steps(count)):
        metrics = {
            "ppo_actor/task_reward/avg": m["reward"],
            "ppo_actor/update/entropy/avg": m["entropy"],
            "ppo_actor/update/grad_norm": m["grad"],
            "ppo_actor/update/lr": m["lr"],
            "ppo_actor/update/clip_ratio/avg": m["clip"],
            "ppo_actor/seq_len/avg": m["length"] + 100,
            "ppo_actor/prompt_len/avg": 100.0,
            "ppo_actor/no_eos_ratios/avg": 0.0625,
            "timeperf/train_step": m["seconds"],
        }
        lines.append(
            "20260521-10:00:00.000 StatsLogger INFO: "
            f"Epoch 1/1 Step {step + 1}/{count} Train step {step + 1}/{count} done."
        )
        lines += ["20260521-10:00:00.000 StatsLogger INFO: Stats (1/1):", "╒══════╤══════╤══════╤══════╕"]
        items = [(name.replace("ppo_actor", actor), f"{value:.4e}") for name, value in metrics.items()]
        items += [("", "")] * (-len(items) % pairs)
        for first in range(0, len(items), pairs):
            cells = [f" {name} │ {value} " for name, value in items[first : first + pairs]]
            lines += [f"│{'│'.join(cells)}│", "├──────┼──────┼──────┼──────┤"]
        lines[-1] = "╘══════╧══════╧══════╧══════╛"
    return write(path, lines)
