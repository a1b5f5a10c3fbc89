"""Extension: jobs in other processes of this machine, and work beside a training."""
