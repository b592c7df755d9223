"""Google's and Azure's object storage on loopback: a fake server of either, with one bucket, and how to put objects."""
