"""Extension: stage two with several seeds as one program, `src.train_seeds`."""
