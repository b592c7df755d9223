"""Between domain values and the bytes of the contract, both ways.

`messages`: cursors and specs. `micro_batch`: the hot message, encoded and read by hand.
`responses`: all that a stream carries.
`runs`: what the services tell about runs and stores. `status`: errors.
"""
