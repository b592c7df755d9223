"""Trainers under torchrun and servers, killed where a story says, and the books on what was consumed."""
