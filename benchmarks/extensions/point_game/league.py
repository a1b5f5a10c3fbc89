"""Hosts of the polyhedra game against agents of an earlier training and of a league: rho over three seeds.

    python -m benchmarks.extensions.point_game.league [KEY=VALUE ...]

For each of the seeds 0, 1, 2, one after the other on one thread, `python -m src.train_players` trains

- both players into logs/point_league-early-<seed>/, with snapshots of three updates;
- a host against the three agents of these snapshots and the fixed agents, into logs/point_league-three-<seed>/;
- both players against each other, a league of four earlier selves and fixed players, into
  logs/point_league-league-<seed>/.

Then each of these hosts, and Zeillinger's, play all these agents. Unfinished runs are continued, finished ones read.
95 % intervals over seeds and games.
"""

import sys
import time

import torch

from benchmarks.extensions.point_game.players import SEEDS, print_table
from icrl.app.compose import compose_config
from icrl.config.options import replace
from icrl.contracts import Json
from icrl.extensions.point_game.fixed_players import AGENTS, HOSTS
from icrl.extensions.point_game.players.learners import make_game
from icrl.extensions.point_game.players.options import PlayersConfig
from icrl.extensions.point_game.players.trained_players import Player, load_for
from icrl.extensions.point_game.programs.train_players import main as train_players
from icrl.extensions.point_game.rollout import measure, rho_over_runs

KINDS, NUM_GAMES = ("early", "three", "league"), 500
UPDATES, EARLY = 3000, (1000, 2000, 3000)
# The updates of the agents by training; at the end a league holds its newest four.
AGENTS_AT = {"early": EARLY, "league": (1500, 2000, 2500, 3000)}
SHARED = (  # the matches that count are played at the end
    *(f"training.num_updates={UPDATES}", "training.league_interval=500", "checkpoints.snapshot_interval=500"),
    *("num_threads=1", "evaluation.num_evals=0", "evaluation.num_final_games=50", "evaluation.pictures=false"),
)


def main(overrides: list[str]) -> None:
    wall, processor = time.perf_counter(), time.process_time()
    for seed in SEEDS:
        early, three, league = (f"point_league-{kind}-{seed}" for kind in KINDS)
        saved, fixed = ",".join(f"logs/{early}@{step}" for step in EARLY), ",".join(AGENTS)
        options: dict[str, list[str]] = {
            early: [],
            three: ["agent.player=random", f"host.opponents=[{saved},{fixed}]"],
            league: [f"host.opponents=[agent,league,{fixed}]", "agent.opponents=[host,league,zeillinger]"],
        }
        for name, own in options.items():
            train_players(compose_config(PlayersConfig, [*SHARED, f"name={name}", f"seed={seed}", *own, *overrides]))
    config = compose_config(PlayersConfig, [*SHARED, *overrides])
    runs = [matches(replace(config, seed=seed)) for seed in SEEDS]
    print_table(rho_over_runs(runs, SEEDS[0]))
    spent = (time.perf_counter() - wall) / 60, (time.process_time() - processor) / 60
    print("minutes: {:.1f}, of the processor {:.1f}".format(*spent))


def matches(config: PlayersConfig) -> Json:
    """Matches of the hosts trained with the seed of `config`, and of a fixed one, with trained and fixed agents."""
    device = torch.device("cpu")

    def player(kind: str, side: str, which: str = "") -> Player:
        return load_for(config, f"logs/point_league-{kind}-{config.seed}{which}", side, device).player()

    hosts = {kind: player(kind, "host") for kind in KINDS} | {"zeillinger": HOSTS["zeillinger"]}
    agents = {
        f"{kind} {at}": player(kind, "agent", f"@{at}") for kind, those in AGENTS_AT.items() for at in those
    } | AGENTS
    pairs = {f"{one}_vs_{other}": (hosts[one], agents[other]) for one in hosts for other in agents}
    return measure(make_game(config), pairs, NUM_GAMES, config.evaluation.max_moves, config.seed)


if __name__ == "__main__":
    main(sys.argv[1:])
