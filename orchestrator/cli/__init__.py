"""The command line: `main` runs an orchestrator, `evals` looks at what evals came to."""
