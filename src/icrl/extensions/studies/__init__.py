"""Studies: comparisons of variants over seeds, with a report. They run with the engines of the extension `scaling`."""

NEEDS = ("scaling",)
