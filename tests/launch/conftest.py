"""Commands of these tests are called in their own process."""

from tests.in_process import cli

__all__ = ["cli"]  # a fixture
