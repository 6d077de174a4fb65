"""What trackers keep: event files by TensorBoard's own writer, MLflow's folders and database, trackio's database, ART's
history, and scrapes of an engine's metrics."""

import json
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path

from diagnosis.samples.run import steps

START = 1_780_000_000.0


def event_file(
    folder: Path, rows: Iterable[tuple[int, float, Mapping[str, float]]], suffix: str = "", *, tensors: bool = False
) -> Path:
    """Rows are step, time, values; each value is an event of its own, as torch's writer has it. `tensors`: as
    TensorFlow writes scalars."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter
    from tensorboard.util.tensor_util import make_tensor_proto

    writer = EventFileWriter(str(folder), filename_suffix=suffix)
    for step, time, values in rows:
        for tag, value in values.items():
            kept = {"tensor": make_tensor_proto(value, dtype="float32")} if tensors else {"simple_value": value}
            writer.add_event(Event(wall_time=time, step=step, summary=Summary(value=[Summary.Value(tag=tag, **kept)])))
    writer.close()
    return next(each for each in folder.iterdir() if each.name.endswith(suffix) and "tfevents" in each.name)


def mlflow_run(folder: Path, rows: Iterable[tuple[int, float, Mapping[str, float]]], status: int = 3) -> Path:
    run = folder / "mlruns" / "1" / "0a1b2c"
    for name in ("metrics", "params", "tags"):
        (run / name).mkdir(parents=True, exist_ok=True)
    (run / "meta.yaml").write_text(f"lifecycle_stage: active\nrun_id: 0a1b2c\nstatus: {status}\n")
    (run / "params" / "actor.optim.lr").write_text("1e-06")
    (run / "params" / "adv_estimator").write_text("grpo")
    for step, time, values in rows:
        for key, value in values.items():
            file = run / "metrics" / key.replace("@", "_at_")
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("a") as lines:
                lines.write(f"{round(1000 * time)} {value} {step}\n")
    return folder / "mlruns"


def mlflow_database(path: Path, rows: Iterable[tuple[int, float, Mapping[str, float]]]) -> Path:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            "CREATE TABLE runs (run_uuid TEXT PRIMARY KEY, status TEXT, lifecycle_stage TEXT);"
            "CREATE TABLE params (key TEXT, value TEXT, run_uuid TEXT);"
            "CREATE TABLE metrics (key TEXT, value REAL, timestamp INTEGER, run_uuid TEXT, step INTEGER, is_nan INT);"
            "INSERT INTO runs VALUES ('r1', 'FINISHED', 'active'), ('r2', 'FINISHED', 'deleted');"
            "INSERT INTO params VALUES ('lr', '1e-06', 'r1');"
            "INSERT INTO metrics VALUES ('reward', 1, 1, 'r2', 0, 0);"
        )
        for step, time, values in rows:
            for key, value in values.items():
                nan = value != value
                stored = 0.0 if nan else max(min(value, 1.7976931348623157e308), -1.7976931348623157e308)
                record = (key, stored, round(1000 * time), "r1", step, nan)
                connection.execute("INSERT INTO metrics VALUES (?, ?, ?, ?, ?, ?)", record)
        connection.commit()
    return path


def trackio(path: Path, runs: Mapping[str, Iterable[tuple[int, Mapping[str, object]]]]) -> Path:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            "CREATE TABLE metrics (id INTEGER PRIMARY KEY AUTOINCREMENT, timestamp TEXT NOT NULL,"
            " run_name TEXT NOT NULL, step INTEGER NOT NULL, metrics TEXT NOT NULL);"
            "CREATE TABLE configs (id INTEGER PRIMARY KEY, run_name TEXT, config TEXT, created_at TEXT);"
        )
        for name, rows in runs.items():
            config = json.dumps({"algo": {"lr": 1e-6}, "_Created": "now"})
            connection.execute("INSERT INTO configs (run_name, config) VALUES (?, ?)", (name, config))
            for step, metrics in rows:
                record = (f"2026-08-21T10:00:{step % 60:02d}+00:00", name, step, json.dumps(metrics))
                connection.execute(
                    "INSERT INTO metrics (timestamp, run_name, step, metrics) VALUES (?, ?, ?, ?)", record
                )
        connection.commit()
    return path


def art(path: Path, count: int = 30) -> Path:
    rows = []
    for step, m in enumerate(steps(count)):
        common = {"step": step, "recorded_at": f"2026-08-21T10:{step // 60:02d}:{step % 60:02d}", "training_step": step}
        if step % 10 == 0:
            rows.append({"val/reward": m["reward"] / 2, "val/exception_rate": 0.0, **common})
        rewards = {"train/reward": m["reward"], "train/reward_std_dev": m["std"], "train/exception_rate": 0.0}
        groups = {"data/step_num_groups_submitted": 8.0, "data/step_num_groups_trainable": 6.0}
        rows.append({**rewards, **groups, **common})
        losses = {"loss/train": m["loss"], "loss/entropy": m["entropy"], "loss/grad_norm": m["grad"]}
        rows.append({**losses, "loss/learning_rate": m["lr"], "time/step_trainer_s": m["seconds"], **common})
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def vllm_scrape(scrape: int, *, preemptions: int, usage: float = 0.5, engines: int = 2, restarted: bool = False) -> str:
    """Counters of each engine grow by 100 queries, of which 60 hit, and 1000 tokens; `restarted`: they began anew."""
    grown = 1 if restarted else scrape + 1
    lines = []
    for name, kind, value in (
        ("vllm:num_requests_running", "gauge", 4.0),
        ("vllm:num_requests_waiting", "gauge", float(scrape)),
        ("vllm:kv_cache_usage_perc", "gauge", usage),
        ("vllm:prefix_cache_queries_total", "counter", 100.0 * grown),
        ("vllm:prefix_cache_hits_total", "counter", 60.0 * grown),
        ("vllm:num_preemptions_total", "counter", float(preemptions)),
        ("vllm:generation_tokens_total", "counter", 1000.0 * grown),
    ):
        lines += [f"# HELP {name} What it is.", f"# TYPE {name} {kind}"]
        time = round(1000 * (START + 10 * scrape))
        lines += [f'{name}{{engine="{engine}",model_name="org/a{{b}}"}} {value} {time}' for engine in range(engines)]
    lines += [
        "# TYPE vllm:time_to_first_token_seconds histogram",
        'vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf"} 5.0',
        f'vllm:time_to_first_token_seconds_sum{{engine="0"}} {2.0 * grown}',
        f'vllm:time_to_first_token_seconds_count{{engine="0"}} {4.0 * grown}',
    ]
    return "\n".join(lines) + "\n"


SGLANG = """# HELP sglang:token_usage The token usage
# TYPE sglang:token_usage gauge
sglang:token_usage{model_name="m",tp_rank="0"} 0.28
sglang:token_usage{model_name="m",tp_rank="1"} 0.32
# TYPE sglang:cache_hit_rate gauge
sglang:cache_hit_rate{model_name="m"} 0.75
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{model_name="m"} 7.0
"""
