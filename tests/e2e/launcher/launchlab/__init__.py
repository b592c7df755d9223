"""Jobs of tiny stand-in processes under a real launcher, with real signals."""
