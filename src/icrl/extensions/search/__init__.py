"""Extension: the search for options of a program, by Optuna: `src.search_params`."""
