"""What all tests share: property tests have no deadline for one example, since timings are never asserted."""

from hypothesis import settings

settings.register_profile("headrace", deadline=None)
settings.load_profile("headrace")
