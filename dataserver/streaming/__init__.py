"""Streams: how sealed steps reach the ranks, one session per stream.

catalog    the stores that this server owns
contexts   run spec + stores -> planner and sample table, built once
once       each value computed once, whoever asks
threads    blocking work off the event loop
waits      every wait has a limit, a log line and a metric
pacing     which step may be sealed, by what the ranks consumed
credits    how many micro-batches a rank is ready to take
attempts   one attempt as this process serves it: plans and seals (attendant: acks; closing: what follows the last step)
supply     where a stream's steps come from: an attempt (attempt_supply), or a held-out store (held_out)
registry   all attempts of this process, drain
leases     its streams in the ledger
session    one stream of one rank
encodings  its micro-batches, encoded ahead
outlook    an attempt's plans by the stages known so far, and the loading of their blocks (fetches)
known_rows plans over lazily admitted stores: blocks that nobody has looked at are checked first

Who closes what: the registry closes a LiveAttempt when its last rank leaves or the server ends; that stops its plans,
its seals and its attendant, and closes the fetches of its outlook. An outlook that another stage replaced is left by
its plans as they notice it, and its fetches are closed at once. A Reading closes its fetches with its last reader.
Fetches close the wishes that they hold in the block cache. Stores belong to the catalog, which the server closes last.
"""
