"""Tests of the built HTML, read as text and shown in a browser."""
