"""Extension: tables of curves (`summaries.writer=csv`), and plots of finished training runs, for notebooks."""
