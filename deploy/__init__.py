"""How jobs are run: the local launcher, and files for Slurm, Kubernetes and images."""
