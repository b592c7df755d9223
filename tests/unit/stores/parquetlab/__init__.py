"""Parquet files by many writers, also as older ones left them.

Older writers gave lists other schemas, and pages in no other form: with as many levels of definition and repetition the
bytes of the pages are the same. So an old file is a new one with another footer.
"""
