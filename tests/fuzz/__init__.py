"""Fuzzers: damaged and hostile files for every reader, in processes that may crash. Run ``python -m tests.fuzz``."""
