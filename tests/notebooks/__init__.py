"""Tests of the committed, executed chapters."""
