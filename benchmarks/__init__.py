"""Measurements. Each module prints a table, writes JSON under benchmarks/results/ and says what it saw.

Times are compared only within one run, as ratios: machines are shared and noisy.
"""
