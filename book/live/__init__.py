"""The live figures: modules of JavaScript, tables that they read, and one script of both."""
