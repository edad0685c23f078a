"""The maintainer's tools: run the chapters, look at the site."""
