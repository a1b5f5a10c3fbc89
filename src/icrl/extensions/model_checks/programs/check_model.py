"""Two checks of a trained model: do its own mistakes harm it, and is it worse than random play in unfamiliar tasks?

python -m src.check_model [KEY=VALUE ...]      logs/<run>/<policy.model>/ -> logs/<name>/evaluation.../: checks.*

Its own mistakes: in the first half of a life a share of its actions is replaced by random ones, which it reads as its
own. The second half is compared, stream by stream, with that of an undisturbed life, and with as many episodes from an
empty context. Tasks of another kind: for a whole life its actions do what other actions did in training
(`disturbed.OtherActions`), and random play is measured there too. `policy.model` and `evaluation.checkpoint` choose the
model, `evaluation.num_episodes` and `evaluation.num_probe_streams` the size, as for `src.evaluate`.
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from icrl.app.root import Config
from icrl.contracts import Json, Rollout
from icrl.envs.policies import Chance
from icrl.evaluation.in_context import Adaptation, play_episodes
from icrl.evaluation.measures import Cells, intervals, widen
from icrl.evaluation.setup import Setup, open_setup
from icrl.evaluation.tables import aligned, interval_text
from icrl.extensions.model_checks.disturbed import Noisy, OtherActions
from icrl.plots import style
from icrl.plots.figures import adaptation_figure, panel_of
from icrl.rl.statistics import Values
from icrl.runs.device import prepare
from icrl.runs.files import only_writer, write_json
from icrl.runs.processes import in_parallel

LARGE = "evaluation.num_probe_streams, evaluation.num_bootstrap"
SHARES = (0.0, 0.25, 0.5, 1.0)  # of random actions in the first half
OTHER, RANDOM = "other actions", "other actions, random play"


def main(config: Config) -> Path:
    """Play, and write numbers and picture; returns their folder."""
    with open_setup(config, prepare(config)) as setup:
        played = _played(setup)
        found = checks(setup, played)
        with only_writer(setup.folder):
            write_json(setup.folder / "checks.json", found)
            style.save_picture(setup.folder / "checks.png", style.figure_to_array(checks_figure(found)))
        print(f"{checks_table(found)}\n\n{setup.folder / 'checks.png'}")
    return setup.folder


def noise_name(share: float) -> str:
    """Name of the lives with this share of random actions."""
    return f"random actions {share:.0%}"


def _played(setup: Setup) -> dict[str, Adaptation]:
    """Episodes `[G, S, E]` of each check."""
    options, seed, tasks = setup.config.evaluation, setup.config.seed, setup.tasks[setup.main]
    half, size = options.num_episodes // 2, (options.num_probe_streams, options.num_episodes, seed)
    plays: dict[str, Callable[[], tuple[Adaptation, Rollout]]] = {
        noise_name(share): partial(play_episodes, Noisy(setup.policy, share, half), setup.env, tasks, *size)
        for share in SHARES
    }
    if not (setup.env.spec.action_mask or setup.env.spec.points[0]):  # whose legal actions would not fit
        world: Any = OtherActions(setup.env)
        plays[OTHER] = partial(play_episodes, setup.policy, world, tasks, *size)
        plays[RANDOM] = partial(play_episodes, Chance(setup.env.spec), world, tasks, *size)
    return {name: adaptation for name, (adaptation, _) in in_parallel([*plays.items()], setup.width, "check")}


def checks(setup: Setup, played: Mapping[str, Adaptation]) -> Json:
    """Numbers of the episodes `played` in each check, with intervals over tasks and streams: curves, the mean of the
    second half (`late`), and its differences, paired by stream. Success is measured if the model ever has one, else
    returns."""
    undisturbed, half = played[noise_name(0.0)], setup.config.evaluation.num_episodes // 2
    measure = "success" if undisturbed.success.any() else "returns"
    values: dict[str, Values] = {name: getattr(one, measure)[None] for name, one in played.items()}
    whole = values[noise_name(0.0)]
    late = whole[..., half:].mean(-1)
    early = whole[..., : whole.shape[-1] - half].mean(-1)  # of as many episodes
    cells: Cells = {}
    for name, each in values.items():
        second, others = each[..., half:].mean(-1), {"undisturbed": late, "empty context": early}
        if name == OTHER:
            others = {"random play": values[RANDOM][..., half:].mean(-1)}
        cells |= {("curves", name): each, ("late", name): second}
        if name not in (noise_name(0.0), RANDOM):
            cells |= {(f"late less {other}", name): second - than for other, than in others.items()}
    options, seed = setup.config.evaluation, setup.config.seed
    shown = intervals(cells, options, seed, bounds={})
    for (section, name), each in cells.items():
        if measure == "success" and section != "curves":
            limits = (0.0 if section == "late" else -1.0, 1.0)
            widen(shown[section][name], each.mean(-1), limits, len(early[0]))
    protocol = {"streams": options.num_probe_streams, "tasks": len(early[0]), "episodes": options.num_episodes}
    return {"measure": measure, "half": half, "protocol": protocol, "config": setup.config.model_dump(), **shown}


def checks_table(found: Json) -> str:
    """A line for each check: the second half of its lives, differences and a verdict."""
    columns = [name for name in found if name.startswith("late less ")]
    rows = [[f"{found['measure']}, episodes from {found['half'] + 1}", "mean", *columns, "verdict"]]
    for name, late in found["late"].items():
        differences = [found[column].get(name) for column in columns]
        worse = [column for column, one in zip(columns, differences, strict=True) if one and one["high"] < 0]
        harm = [column for column in worse if column != "late less undisturbed"]
        verdict = "harmed" if harm else "worse than undisturbed" if worse else "no harm" if any(differences) else ""
        rows.append([name, _shown(late), *map(_shown, differences), verdict])
    return aligned(rows)


def _shown(numbers: Mapping[str, float] | None) -> str:
    return interval_text(numbers) if numbers else "-"


def checks_figure(found: Json) -> Any:
    """Curves of all lives of both checks; the line is where random actions end."""
    label = "success" if found["measure"] == "success" else "return"
    panel = panel_of(label, found["curves"], [RANDOM] if RANDOM in found["curves"] else [])
    figure = adaptation_figure([panel], title="Two checks of the model")
    figure.axes[0].axvline(found["half"] + 0.5, color=style.REFERENCE_COLORS[0], linewidth=1)
    return figure
