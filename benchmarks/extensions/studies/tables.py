"""Tables of the documentation: which figures of which studies are in which line. `learning` writes them."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from icrl.extensions.studies.report import published_measure

MODEL = "model"


class Line(NamedTuple):
    """A line of a table: a policy in the runs of a study's variant."""

    study: str
    variant: str
    policy: str = MODEL
    label: str = ""  # in place of the policy's name
    test: str = ""  # the world, if a variant is evaluated in several


class Table(NamedTuple):
    lines: Sequence[Line]
    columns: Sequence[str]  # names of figures
    head: str = "policy"


class Row(NamedTuple):
    """A row of a compact table: one figure of several policies or variants."""

    label: str
    figure: str
    lines: Sequence[Line]


class Compact(NamedTuple):
    """Table with a row for each world, room or study. The first lines of a row have columns of their own, as many as
    `head` names; further ones stand in the column after these, each with its name. `RETURN_FIRST` in `head` is that of
    the first line, `PUBLISHED` what is published for the variant."""

    rows: Sequence[Row]
    head: Sequence[str]


_SEARCH, _A2C, _PLAIN = "at random", "from A2C, weighted by improvement", "from A2C, plain distillation"
_TRIALS = "random splits"
LATE, STEPS, AFTER = "success, 31 to 40", "steps to goal", "after the first success"
COVERED, MEMORY = "cells visited in 4 episodes without a goal", "of these by memory"
OFF_PLAN = "new cells above a blind replay"  # in the three episodes after a random one
ABOVE_OPTIMUM, REGRET = "steps above the optimum", "regret"
TOTAL, LAST = published_measure("total"), published_measure("last")
PUBLISHED, MINUTES = "published", "minutes"
AFTER_MOVE = "ten episodes after the goal moved"
_REFERENCES = (
    "covering plan",
    "searcher",
    "persistent walk with goal memory",
    "turning walk with goal memory",
    "uniform walk with goal memory",
    "random",
)
AREA = "normalised area"
RETURN_FIRST, RETURN_4, RETURN_END = published_measure(1), published_measure(4), "return, last quarter"
SUCCESS_END = "success, last quarter"
_HEADLINES = [
    Line("trials", _TRIALS, label="A2C histories, distilled, then trials (`make run`)"),
    Line("trials", _TRIALS, "model before trials", "the same model before its trials"),
    *(Line("trials", _TRIALS, name) for name in ("optimum", "covering plan", *_REFERENCES[2:4], "random")),
]
_REGIONS = [
    *(Line("regions", name, label=f"{name} held out") for name in ("a quadrant", "the ring")),
    *(
        Line("regions", name, policy, f"{policy}; {name} held out")
        for name in ("a quadrant", "the ring")
        for policy in ("model before trials", _REFERENCES[2])
    ),
    *(
        Line("region_parts", name, label=f"a quadrant held out, {name}")
        for name in (
            "rows and columns apart",
            "without other rooms",
            "ten training goals",
            "without a bonus, from rewards alone",
        )
    ),
]
_A2C_LINES = [
    Line("terminating", _A2C, label="model of A2C, weighted by improvement; 23 at random"),
    Line("terminating", _PLAIN, label="model of A2C, plain distillation; 23 at random"),
    Line("terminating", "from the searcher", label="model of the searcher; 23 at random"),
    *(
        Line("splits", split, label=f"model of A2C, weighted by improvement; {split}")
        for split in ("quadrant", "ring", "checkerboard")
    ),
    *(Line("terminating", _A2C, name, f"{name}; 23 at random") for name in _REFERENCES),
]
_LARGE = "19 x 19, 300 goals: distilled, then trials"
_Q_HISTORIES = ("70 goals", "first third of the lives")
_Q_METHODS = ("distilled, then trials", "in-context CQL", "plain distillation")
_EXPERT, _DOOR = "expert, sees the task", "GoToDoor, 200 iterations"
_HIDDEN, _GRU = "cart pole, velocities hidden", "memory of the episode"
_VECTORS = {"point robot": ("optimum",), "cart pole": (_EXPERT,), "pendulum": (_EXPERT,), _HIDDEN: (_EXPERT,)}
_BESIDE = ("world", "measure", "model", "for comparison")
_FROM = ("world", RETURN_FIRST, *_BESIDE[1:])
_AGENTS = {
    "cart pole": {"no memory": "no memory"},
    "pendulum": {"no memory": "no memory"},
    _HIDDEN: {"no memory": "no memory", _GRU: f"a {_GRU}"},
}
_MDPS = dict.fromkeys(("garnet", "AnyMDP", "AnyMDP, 16 states"), ("PSRL", "random", "optimum"))
_LEVELS = ("GoToDoor", _DOOR, "Fetch", "FourRooms")
_FILTERING = ("all histories", "filtered by improvement", "those that end with success")
_OFFLINE_METHODS = ("AD", "AD weighted", "AD + advantage", "ILQL + AWR")
_PACES = ("fast every 1", "fast every 4", "fast every 16", "slow every 4", "slow every 16")
_TRUNKS = (
    "attention, shared keys",
    "attention, 2 heads",
    "gated delta rule, 2 heads",
    "gated delta rule, 1 head",
    "GRU",
)
_FOUND = {
    "objective": ("AD", "AD weighted by improvement", "AD weighted by recency", "DPT", "AD on noise histories"),
    "pace": tuple(f"{room} {pace}" for room in ("5 x 5", "9 x 9") for pace in _PACES),
    "tasks": tuple(f"{number} goals" for number in (10, 20, 35, 57, 70)),
    "tokens": (
        "one token per step",
        "one token and lookup layer",
        "three tokens per step",
        "streams with cross-attention",
    ),
    "decoding": ("most probable", *(f"temperature {value}" for value in ("0.25", "0.5", "0.75", "1.0", "1.5"))),
    "position": ("learned", "env time", "learned and env time", "rotary", "rotary and env time", "none"),
}
_WORLD_TRIALS = {
    "bandit": ("model before trials", "Thompson sampling", "tuned UCB1", "Gittins index", "random"),
    "contextual bandit": ("model before trials", "Thompson sampling", "tuned UCB1", "Gittins index", "random"),
    "linear bandit": ("model before trials", "Thompson sampling", "LinUCB", "random"),
    "permuted actions": ("model before trials", "searcher", "random"),
    "FrozenLake 6 x 6": ("random", "optimum"),
    "hard room": ("model before trials", "searcher", *_REFERENCES[2:4], "random"),
    "Key-to-Door, key not seen": ("model before trials", "searcher", "random"),
}
_TRIAL_MEASURES = {name: (REGRET, SUCCESS_END) if "bandit" in name else (RETURN_END,) for name in _WORLD_TRIALS}
_LEVEL_REFERENCES = dict.fromkeys(_LEVELS, ("model before trials", _EXPERT, "random"))
_LITERATURE = {
    "5 arms, 100 pulls": "Gittins index",
    "10 arms, 100 pulls": "Gittins index",
    "50 arms, 500 pulls": "Gittins index",
    "ten gaussian arms, one fixed": "Thompson sampling",
    "random MDPs, 10 episodes": "UCRL2",
    "random MDPs, 25 episodes": "UCRL2",
    "treasure rooms, values from 0": "First-Explore",
    "treasure rooms, values from -4": "First-Explore",
}
_COPY = "linear bandit, from Thompson sampling"


class Rank(NamedTuple):
    """A row of the leaderboard: runs of one study, what is measured, and the policy to reach."""

    world: str
    study: str
    variant: str
    figure: str
    reference: str


RANKS = [
    Rank("DarkRoom 9 x 9, 23 goals at random", "trials", _TRIALS, LATE, "optimum"),
    Rank("DarkRoom 9 x 9, a quadrant", "regions", "a quadrant", LATE, "covering plan"),
    Rank("DarkRoom 9 x 9, the ring", "regions", "the ring", LATE, "covering plan"),
    Rank("DarkRoom 17 x 17", "world_trials", "hard room", SUCCESS_END, "searcher"),
    Rank("DarkRoom 9 x 9, 70 goals, Q-learning", "q_histories", f"70 goals: {_Q_METHODS[0]}", LAST, "optimum"),
    Rank("the same, first third of the lives", "q_histories", f"{_Q_HISTORIES[1]}: {_Q_METHODS[0]}", LAST, "optimum"),
    Rank("DarkRoom 19 x 19, 300 goals, Q-learning", "q_histories", _LARGE, LAST, "optimum"),
    Rank("DarkRoom, permuted actions", "world_trials", "permuted actions", SUCCESS_END, "searcher"),
    Rank("Key-to-Door", "worlds", "Key-to-Door", RETURN_END, "optimum"),
    Rank("Key-to-Door, key not seen", "world_trials", "Key-to-Door, key not seen", RETURN_END, "searcher"),
    Rank("FrozenLake 4 x 4", "worlds", "FrozenLake", SUCCESS_END, "optimum"),
    Rank("FrozenLake 6 x 6", "world_trials", "FrozenLake 6 x 6", SUCCESS_END, "optimum"),
    Rank("Bernoulli bandit, 200 pulls", "world_trials", "bandit", REGRET, "Thompson sampling"),
    Rank("contextual bandit, 200 pulls", "world_trials", "contextual bandit", REGRET, "Thompson sampling"),
    Rank("linear bandit, 200 pulls", "world_trials", "linear bandit", REGRET, "Thompson sampling"),
    Rank("the same, a copy of Thompson sampling", "worlds", _COPY, REGRET, "Thompson sampling"),
    Rank("garnet", "mdp_trials", "garnet", RETURN_END, "PSRL"),
    Rank("the same, a copy of PSRL", "worlds", "garnet, from PSRL", RETURN_END, "PSRL"),
    Rank("AnyMDP, 10 states", "mdp_trials", "AnyMDP", SUCCESS_END, "PSRL"),
    Rank("AnyMDP, 16 states", "mdp_trials", "AnyMDP, 16 states", SUCCESS_END, "PSRL"),
    *(Rank(protocol, "literature", protocol, TOTAL, reference) for protocol, reference in _LITERATURE.items()),
    Rank("point robot", "vectors", "point robot", RETURN_END, "optimum"),
    Rank("cart pole", "vectors", "cart pole", RETURN_END, _EXPERT),
    Rank("pendulum", "vectors", "pendulum", RETURN_END, _EXPERT),
    Rank("GoToDoor", "minigrid_trials", _DOOR, RETURN_END, _EXPERT),
    Rank("Fetch", "minigrid_trials", "Fetch", RETURN_END, _EXPERT),
    Rank("FourRooms", "minigrid_trials", "FourRooms", RETURN_END, _EXPERT),
    Rank("ML1 reach", "meta_world", "reach, trials", SUCCESS_END, _EXPERT),
    Rank("ML1 push", "meta_world", "push", SUCCESS_END, _EXPERT),
    Rank("HalfCheetah-Vel", "locomotion", "HalfCheetah-Vel", RETURN_4, _EXPERT),
    Rank("Ant-Dir", "locomotion", "Ant-Dir", RETURN_4, _EXPERT),
    *(Rank(f"{body}, hidden factors", "locomotion", body, RETURN_END, _EXPERT) for body in ("Hopper", "Walker")),
]


def _compact(
    study: str,
    references: Mapping[str, Sequence[str]],
    measures: Mapping[str, Sequence[str]],
) -> Compact:
    """A row for each variant of a study and each of its measures: the model, and the policies it is compared with."""
    return Compact(
        [
            Row(variant, figure, [Line(study, variant, policy) for policy in (MODEL, *references[variant])])
            for variant, figures in measures.items()
            for figure in figures
        ],
        _FROM,
    )


def _variants(study: str, *variants: str) -> list[Line]:
    return [Line(study, variant) for variant in variants]


TABLES: dict[str, Table | Compact] = {
    "headlines": Table(_HEADLINES, ["episode 5", LATE, STEPS, COVERED]),
    "published": Compact(
        [
            Row(rank.world, rank.figure, [Line(rank.study, rank.variant, policy) for policy in (MODEL, "random")])
            for rank in RANKS
            if rank.study in ("q_histories", "literature")
        ],
        ("world", "measure", "model", "random", PUBLISHED),
    ),
    "regions": Table(_REGIONS, [LATE, STEPS, ABOVE_OPTIMUM, "episode 5", AFTER, COVERED, MEMORY], "goals held out"),
    "q_histories": Table(
        [
            *(Line("q_histories", f"{histories}: {method}") for histories in _Q_HISTORIES for method in _Q_METHODS),
            *(Line("q_histories", f"70 goals: {_Q_METHODS[0]}", policy) for policy in (*_REFERENCES[2:4], "random")),
            Line("q_histories", _LARGE),
        ],
        [LAST, PUBLISHED, "episode 10", STEPS, AREA, "updates", MINUTES],
        "histories: method",
    ),
    "search": Table(
        [Line("search", name) for name in (_SEARCH, "a quadrant", "the ring", "at random, moving goals")]
        + [Line("search_parts", name) for name in ("a quadrant, in coordinates", "the ring, in coordinates")],
        [
            LATE,
            STEPS,
            ABOVE_OPTIMUM,
            "episode 4",
            "episode 5",
            "episode 10",
            AFTER,
            COVERED,
            MEMORY,
            OFF_PLAN,
            AFTER_MOVE,
        ],
        "goals held out",
    ),
    "a2c": Table(
        _A2C_LINES,
        [LATE, STEPS, "episode 5", "episode 10", AFTER, "solved at .5", "solved at .9"],
        "policy; goals held out",
    ),
    "larger_rooms": Compact(
        [
            Row(
                f"{side} x {side}",
                figure,
                [
                    Line("larger_rooms", "rooms of 6 to 12 cells", policy, test=side)
                    for policy in (MODEL, "model before trials", "covering plan", *_REFERENCES[2:4])
                ],
            )
            for figure in (LATE, COVERED)
            for side in ("9", "11", "13")
        ],
        ("room", *_BESIDE[1:]),
    ),
    "vectors": Compact(
        [
            Row(
                world,
                RETURN_END,
                [
                    *(Line("vectors", world, policy) for policy in (MODEL, *others)),
                    *(
                        Line("vectors", f"{world}, {agent}", "one agent for all tasks", f"best agent with {label}")
                        for agent, label in _AGENTS.get(world, {}).items()
                    ),
                    Line("vectors", world, "random"),
                ],
            )
            for world, others in _VECTORS.items()
        ],
        ("world", RETURN_FIRST, "model", "for comparison"),
    ),
    "world_trials": Compact(
        [
            *_compact("world_trials", _WORLD_TRIALS, _TRIAL_MEASURES).rows,
            *_compact(
                "mdp_trials", _MDPS, {name: (SUCCESS_END if "Any" in name else RETURN_END,) for name in _MDPS}
            ).rows,
            *_compact("minigrid_trials", _LEVEL_REFERENCES, dict.fromkeys(_LEVELS, (RETURN_END,))).rows,
        ],
        _FROM,
    ),
    "offline": Compact(
        [
            Row(room, figure, [Line("offline", f"{method}, {room}", label=method) for method in _OFFLINE_METHODS])
            for figure in (LATE, STEPS)
            for room in ("7 x 7", "9 x 9", "classic")
        ],
        ("room", "measure", *_OFFLINE_METHODS),
    ),
    "filtering": Table(_variants("filtering", *_FILTERING), [LATE, "episode 10", STEPS, "training tasks"], "histories"),
    "trunk": Compact(
        [Row(figure, figure, _variants("trunk", *_TRUNKS)) for figure in (LATE, STEPS)],
        ("measure on held-out goals", *_TRUNKS),
    ),
    "found": Compact(
        [Row(f"`study={study}`", LATE, _variants(study, *variants)) for study, variants in _FOUND.items()],
        ("study", "variants"),
    ),
}
