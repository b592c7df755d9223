"""Between domain values and the bytes of the contract, both ways.

`messages`: cursors and specs. `micro_batch`: the hot message, read by hand, `images` a field of it;
`micro_batch_writer` writes it, by the loops of `micro_batch_loops`, and `micro_batch_tags` are its fields.
`fields`: protobuf's wire format. `responses`: all that a stream carries.
`runs`, `stores`: what the services tell about them, `store_info` as values alone. `status`: errors.
"""
