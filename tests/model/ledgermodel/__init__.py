"""A model of the protocol around the real ledger: everything that can happen, in every order, up to a bound.

box        the real ledger on an SQLite in memory that can be saved and put back
world      what else there is: trainer jobs, their ranks, checkpoints, messages under way
planning   the real planner over a handful of samples
actions    what can happen next, and what must never have happened
explorer   breadth first over all states; the shortest way to a fault
scenarios  which of all that is switched on
variants   the ledger without one of its rules
"""
