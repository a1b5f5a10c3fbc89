"""Extension: studies, which compare variants over seeds and write a report. They run on the engines of `scaling`."""

NEEDS = ("scaling", "curves", "other_worlds")
