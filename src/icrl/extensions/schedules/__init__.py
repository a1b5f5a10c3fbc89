"""Extension: further schedules of rates, `kind: step`, `exponential`, `inverse` and `cyclical`."""
