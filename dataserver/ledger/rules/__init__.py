"""Every refusal of the ledger and every choice it makes; docs/protocol.md tells them in full."""
