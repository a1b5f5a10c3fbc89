"""Definition of each number of an evaluation, as `results.json` has them."""

from icrl.evaluation.measures import NEAR, SMOOTHED, SURE

DEFINITIONS = {
    "mean": "over seeds, tasks and streams",
    "low, high": "bootstrap interval of the mean: tasks and streams are resampled; with several seeds (training runs) "
    "each resampled mean is moved by t * sqrt(variance of the seeds' means / number of seeds), t from Student's "
    "distribution (seeds - 1); with one seed it says nothing of other training runs; over several splits of the tasks, "
    "Student's t interval over the means of all runs; clipped to what is possible",
    "exact intervals": "by Clopper and Pearson: of `fraction_solved` (with several runs the wider of both); in `final` "
    f"the low end is at most that of n of n tasks if all tasks have at least {SURE} of what is possible, and the high "
    "end at least that of 0 of n if all are as near to the other limit; n counts a task once for each split",
    "possible, optimum_is_bound": "least and largest return and steps of an episode; whether the exact optimum on the "
    "same tasks bounds them too",
    "interquartile_mean": "mean of the middle half of the tasks of all seeds, each the mean over its streams",
    "success": "success rate of episodes",
    "returns": "undiscounted return of an episode",
    "steps_to_goal": "env steps until the success; the length of an episode without success",
    "fraction_of_optimum": "return / the task's exact optimal return; tasks whose optimum is not above 0 are left out",
    "scaled_return": "(return - random) / (best - random), of mean returns over all held-out tasks, in worlds where no "
    "policy has a success; best: the optimum, or the expert that sees the task; intervals take both as known",
    "total": "return of all episodes together",
    "regret": "optimum - return, summed over the episodes so far; in final over all episodes",
    "curves": "one number per episode, by policy and measure",
    "final": "over the last quarter of the episodes, unless the measure says over all",
    "fraction_solved, fraction_solved_90": "share of tasks with a success rate of at least 0.5 or 0.9 in `final`",
    "first_success": "hazard of the first success: success rate of the streams that had none before, up to the last "
    "episode that has such streams",
    "at_risk": "share of streams without a success before the episode",
    "after_first_success": "success rate 1, 2, ... episodes after the first success of a stream",
    "success_after_first": "success rate after the first success of a stream; missing if no stream has one",
    "area": "(return - random) / (optimum - random), mean over all episodes; only tasks whose optimum is above random",
    "episodes_to_90": f"`episode`: the first from which {SMOOTHED} episodes return on average at least {NEAR} of the "
    "mean optimum (null: none); `share_reached`: share of resamples with such an episode; `low`, `high`: over these",
    "regret_to_searcher, regret_to_covering_plan": "mean return of that policy on the task - return, over all episodes",
    "differences": "the model's mean of a task minus the other policy's, over the last quarter of the episodes, by "
    "policy and measure: tasks are the draws (over several splits the means of runs); if no success differs, the exact "
    "interval of 0 of n tasks on both sides",
    "references": "exact expectations of one episode of random and of optimal play, by task",
    "train": "training tasks of the model; those that were set aside are `development`",
    "decodings": "held-out (or development) tasks by sampling temperature; 0: the most probable action",
    "ablations": "the same tasks with a corrupted context",
    "blank": "every reward that the model reads is the one nearest to 0",
    "shuffled": "at the start of each episode the transitions in the context are put in random order",
    "other_task": "at the start of each episode the context is replaced by the model's own past on the next task",
    "wiped": "at the start of each episode the context is emptied",
}
