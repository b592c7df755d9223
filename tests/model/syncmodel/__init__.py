"""A model of syncs around the real ledger: offers, LAST, holds, reports, orchestrators, in every order up to a bound.

Steps have no samples here; the model of attempts, seals and acks is `ledgermodel`, whose ledger and explorer this uses.

world      what there is besides the ledger
play       what ranks do on the ledger: open, receive, meet, acknowledge; and what must never happen
actions    what can happen next
scenarios  which of all that is switched on
variants   the ledger without one of its rules
"""
