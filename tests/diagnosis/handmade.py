"""Runs and what was found in them, made by hand: what reports are tested on."""

from pathlib import Path

import numpy as np

from springtide.diagnosis.frame import Frame, Series, Unavailable
from springtide.diagnosis.log import Note
from springtide.diagnosis.reports.account import Examined
from springtide.diagnosis.verdict import Cause, Diagnosis, Evidence, Excerpt, Missing, Mover, Symptom, Verdict

STEPS = np.arange(0, 400, 10)


def series(name, values, key="", steps=STEPS):
    return Series(name, key or name, np.asarray(steps, dtype=np.int64), np.asarray(values, dtype=np.float64), window=10)


def sick(
    *,
    source="outputs/trainer_state.json",
    framework="trl",
    text="completion/truncated is 0.87, it was 0.02",
    name="reward/mean",
):
    """Entropy moves at step 180, completions run into their limit from step 220 on, reward is lost."""
    falls = 0.7 / (1 + np.exp((STEPS - 230) / 15))
    frame = Frame(
        Path(source),
        framework,
        {
            name: series(name, falls, "reward"),
            "train/entropy": series("train/entropy", np.where(STEPS < 180, 0.3, 2.5), "entropy"),
            "completion/truncated": series(
                "completion/truncated", 0.02 + 0.85 * (STEPS >= 220), "completions/clipped_ratio"
            ),
        },
        {"train/reference_kl": Unavailable("train/reference_kl", "beta is 0", "beta = 0.001")},
        rows=len(STEPS),
        notes=(Note(text="half a line", line=41),),
        settings={"learning_rate": 1e-6},
        checkpoints=(100, 200),
        unknown=("custom/metric",),
    )
    rate = Cause(
        id="learning_rate_high",
        title="the learning rate is too high",
        score=2.1,
        signs=("entropy rose before lengths did",),
        check="run 50 steps from the checkpoint at half the rate",
        remedy="learning_rate = 5e-7",
    )
    stop = Cause(
        id="no_stop", title="no end-of-text token is learnt", score=0.3, check="decode one completion", remedy="eos"
    )
    found = Diagnosis(
        source=source,
        framework=framework,
        steps=390,
        verdict=Verdict.SICK,
        symptoms=(
            Symptom(
                id="S08",
                name="too-easy",
                title="all-correct groups rise",
                verdict=Verdict.WATCH,
                onset_step=50,
                evidence=(Evidence(metric="reward/mean", text="reward/mean is 0.7"),),
            ),
            Symptom(id="S29", name="not-finite", title="values are not finite", verdict=Verdict.OK),
            Symptom(
                id="S33",
                name="length-runaway",
                title="completions run into their limit",
                verdict=Verdict.SICK,
                onset_step=220,
                seen_step=230,
                evidence=(
                    Evidence(
                        metric="completion/truncated", text=text, steps=(220, 230), values=(0.87, 0.87), baseline=0.02
                    ),
                ),
                causes=(rate, stop),
                next_check=rate.check,
                rows=(Excerpt(place="rollouts/220.jsonl:3", step=220, text=text, why="no end", group="7", reward=0.5),),
                measured="found in 3 of 3, wrong on 0 of 20",
            ),
        ),
        causes=(rate, stop),
        earliest_mover=Mover(metric="train/entropy", step=180, symptom="S21"),
        rollback_step=100,
        unavailable=(Missing(metric="train/reference_kl", reason="beta is 0", turn_on="beta = 0.001"),),
        not_checked={"S23": "train/reference_kl is not logged"},
    )
    return Examined(frame, found)


def short():
    frame = Frame(Path("short.log"), "verl", {"reward/mean": series("reward/mean", [0.1, 0.2], steps=[1, 2])}, rows=2)
    found = Diagnosis(
        source="short.log",
        framework="verl",
        steps=2,
        verdict=Verdict.INSUFFICIENT,
        not_checked={
            "S02": "2 values, 50 are needed",
            "S33": "2 values, 6 are needed",
            "S21": "2 values, 6 are needed",
        },
    )
    return Examined(frame, found)


def torn():
    """One of several runs in one file: too short to be judged, and that is said of it."""
    from msgspec.structs import replace

    examined = short()
    mixed = Symptom(
        id="S59",
        name="log-artefacts",
        title="the log holds several runs",
        verdict=Verdict.WATCH,
        causes=(Cause(id="restart", title="it was resumed", score=1.0),),
    )
    return Examined(examined.frame, replace(examined.diagnosis, symptoms=(mixed,)))


def well():
    frame = Frame(
        Path("well"), "springtide", {"reward/mean": series("reward/mean", np.linspace(0.1, 0.9, 40))}, rows=40
    )
    symptoms = (Symptom(id="S33", name="length-runaway", title="completions run into their limit", verdict=Verdict.OK),)
    return Examined(
        frame, Diagnosis(source="well", framework="springtide", steps=390, verdict=Verdict.OK, symptoms=symptoms)
    )
