"""What holds for all tests: no property test may fail because the machine was busy."""

from hypothesis import settings

settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")
