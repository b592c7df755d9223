"""What hostile tests need: a real server in a process of its own, raw bytes to it, and its vital signs."""
