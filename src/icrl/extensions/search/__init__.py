"""Extension: search for the options of a program with Optuna: `src.search_params`."""
