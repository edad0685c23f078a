from hypothesis import settings

# The same examples everywhere and however slow the machine: a red run is a change of ours.
settings.register_profile("book", deadline=None, derandomize=True)
settings.load_profile("book")
