"""Side by side with what a user would use instead; `make bench` runs them all."""
