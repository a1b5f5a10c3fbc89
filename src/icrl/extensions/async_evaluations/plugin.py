"""Registration of the evaluations."""

from icrl.extensions.async_evaluations.process import AsyncEvaluations
from icrl.runs.evaluations import EVALUATIONS

EVALUATIONS.append(AsyncEvaluations)
