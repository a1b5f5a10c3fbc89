"""Tables of the documentation: which figures of which studies are in which line. `learning` writes them."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from icrl.extensions.studies.report import PUBLISHED as OURS

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


_SEARCH, _A2C, _PLAIN = "at random", "from A2C, weighted by improvement", "from A2C, plain distillation"
_TRIALS = "random splits"
LATE, RETURN, STEPS, AFTER = "success, 31 to 40", "return, 31 to 40", "steps to goal", "after the first success"
COVERED, MEMORY = "cells visited in 4 episodes without a goal", "of these by memory"
OFF_PLAN = "new cells above a blind replay"  # in the three episodes after a random one
ABOVE_OPTIMUM, REGRET = "steps above the optimum", "regret"
TOTAL, LAST = OURS.values()
PUBLISHED, MINUTES = "published", "minutes"
UNPUBLISHED = ("greedy planning",)  # references that stand beside published ones
AFTER_MOVE = "ten episodes after the goal moved"
_REFERENCES = (
    "covering plan",
    "searcher",
    "persistent walk with goal memory",
    "turning walk with goal memory",
    "uniform walk with goal memory",
    "random",
)
VISITED = [f"cells by {episode}" for episode in range(1, 7)]
AREA = "normalised area"
RETURN_4, RETURN_FIRST, RETURN_END = "return, episode 4", "return, episode 1", "return, last quarter"
SUCCESS_END = "success, last quarter"
OF_STUDY = (
    LATE,
    RETURN,
    RETURN_4,
    STEPS,
    ABOVE_OPTIMUM,
    "episode 10",
    "training tasks",
    "solved at .5",
    AFTER,
    COVERED,
    MEMORY,
    OFF_PLAN,
    "updates",
)
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
    *(Line("splits", "quadrant", name, f"{name}; quadrant") for name in _REFERENCES),
]
_COVERAGE_LINES = [
    *(Line("terminating", _A2C, name) for name in _REFERENCES[:5]),
    Line("terminating", _A2C, label="model of A2C, context kept"),
    Line("terminating", _A2C, "model, context wiped at reset", "model of A2C, context wiped at reset"),
    Line("terminating", _PLAIN, label="model of plain distillation, context kept"),
    Line("terminating", _PLAIN, "model, context wiped at reset", "model of plain distillation, context wiped"),
    Line("terminating", "from the searcher", label="model of the searcher, context kept"),
    Line("terminating", "from the searcher", "model, context wiped at reset", "model of the searcher, context wiped"),
]
_PARTS = ("rows and columns apart", "without other rooms", "without a bonus, from rewards alone")
_SHORT = "150 of 22 000 updates"
_SPOILED = ("context wiped at reset", "rewards blanked", "another task's context", "context shuffled", "greedy")
_SPOILED += ("temperature 0.5",)
_Q_HISTORIES = ("70 goals", "first third of the lives")
_Q_METHODS = ("distilled, then trials", "in-context CQL", "plain distillation")
_EXPERT, _DOOR = "expert, sees the task", "GoToDoor, 200 iterations"
_HIDDEN, _GRU = "cart pole, velocities hidden", "memory of the episode"
_VECTORS = {"point robot": ("optimum",), "cart pole": (_EXPERT,), "pendulum": (_EXPERT,), _HIDDEN: (_EXPERT,)}
_RANDOM_TABLES = {
    "linear bandit": ("Thompson sampling", "LinUCB", "random"),
    "contextual bandit": ("Thompson sampling", "UCB1", "random"),
    "garnet": ("PSRL", "random", "optimum"),
    "frozen lake 6 x 6": ("random", "optimum"),
}
_WORLD_TRIALS = {
    "bandit": ("model before trials", "Thompson sampling", "UCB1", "random"),
    "contextual bandit": ("model before trials", "Thompson sampling", "UCB1", "random"),
    "linear bandit": ("model before trials", "Thompson sampling", "LinUCB", "random"),
    "permuted actions": ("model before trials", "searcher", "random"),
    "FrozenLake 6 x 6": ("random", "optimum"),
    "hard room": ("model before trials", "searcher", *_REFERENCES[2:4], "random"),
    "Key-to-Door, key not seen": ("model before trials", "searcher", "random"),
}
_WORLDS = {
    "Key-to-Door": ("searcher", "random", "optimum"),
    "Key-to-Door, key not seen": ("searcher",),
    "hard room": ("searcher", *_REFERENCES[2:4], "random"),
    "permuted actions": ("searcher", "random"),
    "bandit": ("Thompson sampling", "UCB1", "random"),
    "FrozenLake": ("random", "optimum"),
}
_LITERATURE = {
    "5 arms, 100 pulls": "Gittins index",
    "10 arms, 100 pulls": "Gittins index",
    "ten gaussian arms, one fixed": "Thompson sampling",
    "random MDPs, 10 episodes": "UCRL2",
    "random MDPs, 25 episodes": "UCRL2",
    "treasure rooms, values from 0": "First-Explore",
    "treasure rooms, values from -4": "First-Explore",
}


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
    Rank("DarkRoom, permuted actions", "world_trials", "permuted actions", SUCCESS_END, "searcher"),
    Rank("Key-to-Door", "worlds", "Key-to-Door", RETURN_END, "optimum"),
    Rank("Key-to-Door, key not seen", "world_trials", "Key-to-Door, key not seen", RETURN_END, "searcher"),
    Rank("FrozenLake 4 x 4", "worlds", "FrozenLake", SUCCESS_END, "optimum"),
    Rank("FrozenLake 6 x 6", "world_trials", "FrozenLake 6 x 6", SUCCESS_END, "optimum"),
    Rank("Bernoulli bandit, 200 pulls", "world_trials", "bandit", REGRET, "Thompson sampling"),
    Rank("contextual bandit, 200 pulls", "world_trials", "contextual bandit", REGRET, "Thompson sampling"),
    Rank("linear bandit, 200 pulls", "world_trials", "linear bandit", REGRET, "Thompson sampling"),
    Rank("garnet", "mdp_trials", "garnet", RETURN_END, "PSRL"),
    Rank("AnyMDP, 10 states", "mdp_trials", "AnyMDP", SUCCESS_END, "PSRL"),
    Rank("AnyMDP, 16 states", "mdp_trials", "AnyMDP, 16 states", SUCCESS_END, "PSRL"),
    *(Rank(protocol, "literature", protocol, TOTAL, reference) for protocol, reference in _LITERATURE.items()),
    Rank("point robot", "vectors", "point robot", RETURN_END, "optimum"),
    Rank("cart pole", "vectors", "cart pole", RETURN_END, _EXPERT),
    Rank("pendulum", "vectors", "pendulum", RETURN_END, _EXPERT),
    Rank("GoToDoor", "minigrid_trials", _DOOR, RETURN_END, _EXPERT),
    Rank("Fetch", "minigrid_trials", "Fetch", RETURN_END, _EXPERT),
    Rank("ML1 reach", "meta_world", "reach", RETURN_END, _EXPERT),
    Rank("HalfCheetah-Vel", "half_cheetah", "HalfCheetah-Vel", RETURN_4, _EXPERT),
]


def _beside(study: str, references: Mapping[str, Sequence[str]]) -> list[Line]:
    """The model of each variant of a study, and below it the policies it is compared with."""
    return [
        Line(study, variant, policy, f"{variant}: {policy}")
        for variant, others in references.items()
        for policy in (MODEL, *others)
    ]


TABLES = {
    "headlines": Table(_HEADLINES, [LATE, STEPS, ABOVE_OPTIMUM, "episode 5", COVERED, MEMORY, OFF_PLAN]),
    "regions": Table(_REGIONS, [LATE, STEPS, ABOVE_OPTIMUM, "episode 5", AFTER, COVERED, MEMORY], "goals held out"),
    "source_trials": Table(
        [Line("source_trials", name) for name in ("A3C", "PPO", "Q-learning", "DQN")],
        [LATE, STEPS, ABOVE_OPTIMUM, "episode 5", COVERED, MEMORY, OFF_PLAN],
        "histories of",
    ),
    "trial_parts": Table(
        [Line("trial_parts", name) for name in _PARTS],
        [LATE, STEPS, ABOVE_OPTIMUM, "episode 5", COVERED, MEMORY, OFF_PLAN],
        "without",
    ),
    "reference_recipe": Table(
        [Line("reference_recipe", _SHORT, policy) for policy in (MODEL, *_REFERENCES[2:4], "random")],
        [LATE, STEPS, "episode 5", COVERED, MEMORY],
    ),
    "q_histories": Table(
        [
            *(Line("q_histories", f"{histories}: {method}") for histories in _Q_HISTORIES for method in _Q_METHODS),
            *(Line("q_histories", f"70 goals: {_Q_METHODS[0]}", policy) for policy in (*_REFERENCES[2:4], "random")),
        ],
        [LAST, PUBLISHED, "episode 10", STEPS, AREA, "updates", MINUTES],
        "histories: method",
    ),
    "larger_rooms": Table(
        [
            Line("larger_rooms", "rooms of 6 to 12 cells", policy, f"{side} x {side}: {policy}", side)
            for side in ("9", "11", "13")
            for policy in (MODEL, "model before trials", "covering plan", *_REFERENCES[2:4])
        ],
        [LATE, STEPS, "episode 10", AFTER, COVERED, "cells by 8"],
        "room: policy",
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
    "coverage": Table(_COVERAGE_LINES, VISITED),
    "vectors": Table(
        _beside("vectors", {world: (*others, "random") for world, others in _VECTORS.items()})
        + [
            Line("vectors", f"{world}, no memory", "one agent for all tasks", f"{world}: best agent without memory")
            for world in ("cart pole", "pendulum", _HIDDEN)
        ]
        + [Line("vectors", f"{_HIDDEN}, {_GRU}", "one agent for all tasks", f"{_HIDDEN}: best agent with a {_GRU}")],
        [RETURN_FIRST, RETURN_4, RETURN_END, SUCCESS_END],
        "world: policy",
    ),
    "random_tables": Table(
        _beside("tables", _RANDOM_TABLES),
        [RETURN_FIRST, RETURN_END, SUCCESS_END, REGRET],
        "world: policy",
    ),
    "minigrid": Table(
        _beside("minigrid", dict.fromkeys(("GoToDoor", "Fetch"), (_EXPERT, "random"))),
        [RETURN_FIRST, RETURN_4, RETURN_END, SUCCESS_END],
        "level: policy",
    ),
    "meta_world": Table(
        [Line("meta_world", "reach", policy, policy) for policy in (MODEL, _EXPERT, "random")],
        [RETURN_FIRST, RETURN_4, RETURN_END, SUCCESS_END],
    ),
    "half_cheetah": Table(
        [Line("half_cheetah", "HalfCheetah-Vel", policy, policy) for policy in (MODEL, _EXPERT, "random")],
        [RETURN_FIRST, RETURN_4, RETURN_END],
    ),
    "worlds_in_context": Table(
        _beside("worlds", _WORLDS),
        [RETURN_FIRST, RETURN_END, SUCCESS_END, REGRET],
        "world: policy",
    ),
    "minigrid_trials": Table(
        _beside(
            "minigrid_trials", dict.fromkeys(("GoToDoor", _DOOR, "Fetch"), ("model before trials", _EXPERT, "random"))
        ),
        [RETURN_FIRST, RETURN_4, RETURN_END, SUCCESS_END],
        "level: policy",
    ),
    "mdp_trials": Table(
        _beside("mdp_trials", dict.fromkeys(("garnet", "AnyMDP", "AnyMDP, 16 states"), ("PSRL", "random", "optimum"))),
        [RETURN_FIRST, RETURN_END, SUCCESS_END],
        "world: policy",
    ),
    "world_trials": Table(
        _beside("world_trials", _WORLD_TRIALS),
        [RETURN_FIRST, RETURN_END, SUCCESS_END, REGRET],
        "world: policy",
    ),
    "finetune": Table(
        [Line("finetune", name) for name in ("before", "fine-tuned", "from random weights")]
        + [Line("finetune", "before", name) for name in ("covering plan", *_REFERENCES[2:4])],
        [LATE, STEPS, "episode 4", "episode 5", AFTER, COVERED, MEMORY],
        "model",
    ),
    "spoiled": Table(
        [
            Line(name, variant, f"model, {way}", f"model of {label}, {way}")
            for name, variant, label in (("search", _SEARCH, "the covering plan"), ("terminating", _A2C, "A2C"))
            for way in _SPOILED
        ],
        [LATE, STEPS],
    ),
}
