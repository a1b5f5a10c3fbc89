"""Extension: pictures of finished trainings from their histories and event files, for notebooks."""
