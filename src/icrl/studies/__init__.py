"""Studies: grids of variants and seeds, planned before any work and reported together."""
