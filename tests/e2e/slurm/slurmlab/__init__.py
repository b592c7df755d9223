"""A Slurm of one node, this machine, run by the user of the tests."""
