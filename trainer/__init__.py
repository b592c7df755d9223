"""The trainer: FSDP2 on Hugging Face causal models, fed by a data server."""
