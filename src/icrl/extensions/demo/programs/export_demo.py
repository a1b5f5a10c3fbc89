"""Export a trained model of a dark room as a page in the browser, in which it learns live.

python -m src.export_demo [KEY=VALUE ...]      logs/<run>/<policy.model>/ -> logs/<name>/demo/

Open `logs/<name>/demo/index.html`. The folder needs no network, and any web server can serve it. Give the options of
the training. The model is that of `evaluation.checkpoint` and `policy.model`; curves of its source are there if
`python -m src.evaluate` was run before. Needs the packages of the extra `[demo]`. See docs/demo.md.
"""

from contextlib import closing
from pathlib import Path
from typing import Any

from icrl.app.root import Config
from icrl.config.options import refuse
from icrl.contracts import Json
from icrl.envs import make_env
from icrl.evaluation import trained
from icrl.evaluation.kinds import policy_kind, policy_suffixes
from icrl.evaluation.report import RESULTS, read_results
from icrl.extensions.demo.checkpoint import check_room, file_content
from icrl.extensions.demo.page import page_files
from icrl.runs.device import prepare
from icrl.runs.files import check_same, only_writer, write_atomically

LARGE = "model.num_layers, model.embed_dim, env.size"


def main(config: Config) -> Path:
    """Write the page of the configured checkpoint; returns its folder."""
    device = prepare(config)
    with closing(make_env(config.env, device)) as env:
        room = check_room(env, config.env.name)
        opened = policy_kind(config.policy, config.finetune).open(config, device)
        policy = f"policy.model={config.policy.model} and policy.advantage_scale={config.policy.advantage_scale}"
        refuse(not opened.is_plain, f"{policy}: the page can run only a sequence model on its own")
        other = f"model.head={config.model.head}: the page runs only models with model.head=auto"
        refuse(config.model.head != "auto", other)
        last = config.evaluation.checkpoint == "last"
        compared = ("env", "tasks", *opened.compared)
        check_same(config, opened.described["config"], compared, str(opened.folder), budgets=last)
        model = opened.make(config, env.spec, device).to("cpu")
        about = {"name": config.name, "step": opened.step, "checkpoint": opened.checksum}
        split = opened.described["tasks"]
        learned = [task for task in split["train"] if task not in split["development"]]
        parts = {"train": learned, "held_out": split["held_out"] or learned}
        goals = {part: [split["all"][task][0] for task in tasks] for part, tasks in parts.items()}
        policy = trained.policy_of(config, model)
        content = file_content(room.to("cpu"), policy, about, goals, curves_of(config, opened.checksum))
    folder = config.folder("logs") / "demo"
    with only_writer(folder):
        for name, file in page_files(content).items():
            write_atomically(folder / name, file)
    print(f"open the page: {folder / 'index.html'}")
    return folder


def curves_of(config: Config, checkpoint: str) -> Json:
    """Curves of the evaluation of a checkpoint, by its checksum; none if there is no such evaluation."""
    folder = config.folder("logs") / f"evaluation{trained.suffix_of(policy_suffixes(config))}"
    if (folder / RESULTS).exists():
        results = read_results(folder)[0]
        if results["checkpoint"] == checkpoint:
            return results["curves"]
    print(f"{folder} has no results of this model, so the page shows neither its mean curves nor those of the source")
    return dict[str, Any]()
