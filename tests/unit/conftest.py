"""What holds for every unit test: property tests have no deadline for an example, since machines are busy at times."""

from hypothesis import settings

settings.register_profile("patient", deadline=None)
settings.load_profile("patient")
