"""What trainer tests share: ranks that start fast, steps made in memory, a float64 reference."""
