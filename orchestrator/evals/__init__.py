"""Evaluations of the policy while it trains."""
