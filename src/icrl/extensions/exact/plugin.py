"""Registration of the exact references."""

from icrl.evaluation.references import EXACT
from icrl.extensions.exact.expectation import exact_results

EXACT.append(exact_results)
