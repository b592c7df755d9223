"""Services: proto messages to domain calls and back, one file per service, and nothing else."""
