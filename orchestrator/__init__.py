"""The orchestrator: evaluates the policy on vLLM while it trains, and says which weights it needs."""
