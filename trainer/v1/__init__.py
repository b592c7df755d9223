"""The contract's messages and services, as `make proto` writes them from protos/trainer/v1."""
