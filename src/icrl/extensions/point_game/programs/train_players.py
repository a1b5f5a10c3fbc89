"""Train host and agent of the polyhedra game against each other, or one of them against fixed players.

python -m src.train_players [KEY=VALUE ...]      -> logs/<name>/players/
"""

from pathlib import Path

import numpy as np

from icrl.contracts import Json
from icrl.extensions.point_game.fixed_players import AGENTS, HOSTS
from icrl.extensions.point_game.players.fit import FORM, check_continues, fit_players, owner_of
from icrl.extensions.point_game.players.learners import Players, make_game, make_learners
from icrl.extensions.point_game.players.options import LEAGUE, PlayersConfig
from icrl.extensions.point_game.point_pictures import write_match_plot, write_pictures
from icrl.extensions.point_game.rollout import measure, players_of
from icrl.runs.checkpoint import FINISHED
from icrl.runs.device import prepare
from icrl.runs.files import check_owner, only_writer, read_json, read_owned, write_owned
from icrl.runs.metrics import check_writers

OPTIONS = PlayersConfig
SEARCHED = ("players", "rho of the host less rho against the agent")  # options, and the value of a run
LARGE = "training.num_games, replay.size, the batch_size of host and agent"
_AMID = (  # pairs that are evaluated during training
    *(("host", "agent"), ("host", "random"), ("host", "first"), ("host", "last")),
    *(("random_pair", "agent"), ("all_coordinates", "agent"), ("zeillinger", "agent")),
)


def main(config: PlayersConfig) -> Path:
    """Train, resume, or print the results; returns the folder with them. If no player learns, they only play."""
    check_writers(config.summaries)
    device, folder, owner = prepare(config), config.folder, owner_of(config)
    finished, found, updates = folder / FINISHED, folder / "results.json", config.training.num_updates
    with only_writer(folder):
        done = -1
        if finished.exists() and found.exists():
            before, of_end, done = read_owned(finished, {"config": dict})
            check_continues(config, before["config"])
            check_owner(finished, of_end, owner)
        if done < updates:
            if config.learning:
                players = fit_players(config, lambda players: evaluate(config, players), device)
            else:
                players = make_learners(config, device)[1]
            results = evaluate(config, players, final=True)
            write_owned(found, owner, updates, {"matches": results})
            if config.evaluation.pictures:
                shown = {name: results[name] for name in (f"{one}_vs_{other}" for one, other in _AMID)}
                write_match_plot(folder / "matches.png", shown, f"Matches of the trained players: {config.name}")
                if config.game.dimension <= 3:
                    sides = players["host"]["host"], players["agent"]["agent"]
                    write_pictures(folder, make_game(config), *sides, config.seed, "host_vs_agent")
            write_owned(finished, owner, updates, {"updates": updates, "config": config.model_dump()})
        content, of_results, _ = read_owned(found, FORM)
        check_owner(found, of_results, owner)
    hosts, agents = players_of(results := content["matches"])
    print(f"{'finished games per move':26}" + "".join(f"{name:>{max(10, len(name) + 2)}}" for name in agents))
    for one in hosts:
        rhos = (f"{found['rho']['value']:.4f}" if (found := results.get(f"{one}_vs_{name}")) else "" for name in agents)
        print(f"{one:26}" + "".join(f"{rho:>{max(10, len(name) + 2)}}" for name, rho in zip(agents, rhos, strict=True)))
    print(f"all {f'{updates} updates' if config.learning else 'matches'} of {config.name} are done: {folder}")
    return folder


def evaluate(config: PlayersConfig, players: Players, *, final: bool = False) -> Json:
    """Matches of the players, by `<host>_vs_<agent>`; with `final`, of all pairs, but a member of a league plays the
    current player alone."""
    hosts, agents, options = players["host"], players["agent"], config.evaluation
    every = [(one, other) for one in hosts for other in agents]
    every = [two for two in every if {*two} & {"host", "agent"} or not any(one.startswith(f"{LEAGUE}_") for one in two)]
    names = every if final else _AMID
    pairs = {f"{one}_vs_{other}": (hosts[one], agents[other]) for one, other in names}
    games = options.num_final_games if final else options.num_games
    return measure(make_game(config), pairs, games, options.max_moves, config.seed)


def value(folder: Path, config: PlayersConfig) -> float:
    """Value of a run in a search: mean rho of a trained host with all fixed agents, less that of all fixed hosts with a
    trained agent."""
    matches, learning = read_json(folder / "results.json")["matches"], config.learning
    hosts = [matches[f"host_vs_{agent}"]["rho"]["value"] for agent in AGENTS if "host" in learning]
    agents = [matches[f"{host}_vs_agent"]["rho"]["value"] for host in HOSTS if "agent" in learning]
    return float(np.mean(hosts or [0.0]) - np.mean(agents or [0.0]))
