"""Evaluations of states that say what happens, for tests of evaluations during training."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import torch

from icrl.config.modules import load_plugins
from icrl.runs.evaluations import EVALUATIONS, EvalsConfig, Evaluation, Evaluations
from icrl.runs.files import read_json
from icrl.runs.metrics import CurvesConfig

SCORES = [9.0, 1.0, 3.0, 3.0, float("nan"), 0.0]  # of steps 0 to 5: the best is 3, the later of two; never step 0
OWNER = {"program": "train_gpt", "run": "f00d"}


def state_at(step: int, act: str = "", where: object = "") -> dict[str, Any]:
    return {"w": torch.full((3,), step / 4), "score": SCORES[step], "act": act, "where": str(where)}


def look(state: dict[str, Any]) -> Evaluation:
    """The score is in the state, and so is what else happens."""
    act, where = state["act"], Path(state["where"])
    if act == "kill twice" and (deaths := len(list(where.parent.glob("death*")))) < 2:
        where.with_name(f"death{deaths}").touch()
        act = "kill"
    if act == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if act == "raise":
        raise ValueError("no such thing")
    while act == "wait" and not where.exists():
        time.sleep(0.01)
    return Evaluation({"sum": state["w"].sum().item()}, state["score"])


def make(folder: Path, done: int = -1, look: Any = look, trained: int = 1, **options: Any) -> Evaluations:
    load_plugins()
    return EVALUATIONS[-1](folder, "eval", look, EvalsConfig(**options), done, OWNER, CurvesConfig(), trained)


def steps_in(folder: Path) -> list[int]:
    return [entry["step"] for entry in read_json(folder / "evaluations.json")["evaluations"]]
