"""Strength of trained players of the polyhedra game: rho of all pairs, over three trainings with different seeds.

    python -m benchmarks.extensions.point_game.players [KEY=VALUE ...]

Runs `python -m src.train_players` with seeds 0, 1, 2, one after the other on one thread, into
logs/point_players-<seed>/. Unfinished runs are continued, finished ones read. 95 % intervals over seeds and games.
"""

import sys
import time

from icrl.app.compose import compose_config
from icrl.contracts import Json
from icrl.extensions.point_game.players.options import PlayersConfig
from icrl.extensions.point_game.programs.train_players import main as train_players
from icrl.extensions.point_game.rollout import players_of, rho_over_runs
from icrl.runs.files import read_json

SEEDS = (0, 1, 2)


def main(overrides: list[str]) -> None:
    configs = [
        compose_config(PlayersConfig, [f"name=point_players-{seed}", f"seed={seed}", "num_threads=1", *overrides])
        for seed in SEEDS
    ]
    runs: list[Json] = []
    minutes: list[float] = []
    for config in configs:
        start = time.perf_counter()
        runs.append(read_json(train_players(config) / "results.json")["matches"])
        minutes.append((time.perf_counter() - start) / 60)
    rhos = rho_over_runs(runs, SEEDS[0])
    print(f"minutes: {', '.join(f'{spent:.1f}' for spent in minutes)}\n")
    print_table(rhos)


def print_table(rhos: Json) -> None:
    """Markdown table of rho with its interval, a row for each host."""
    hosts, agents = players_of(rhos)
    print(f"| host | {' | '.join(agents)} |\n|---|{'---|' * len(agents)}")
    for host in hosts:
        cells = (rhos[f"{host}_vs_{agent}"] for agent in agents)
        print(f"| {host} | {' | '.join('{value:.3f} [{low:.3f}, {high:.3f}]'.format(**cell) for cell in cells)} |")


if __name__ == "__main__":
    main(sys.argv[1:])
