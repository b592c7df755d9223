"""Between domain values and the bytes of the contract, both ways.

`messages`: cursors and specs. `micro_batch`: the hot message, encoded and read by hand, `images` a field of it,
`checksum` what guards it.
`fields`: protobuf's wire format. `responses`: all that a stream carries.
`runs`, `stores`: what the services tell about them, `store_info` as values alone. `status`: errors.
"""
