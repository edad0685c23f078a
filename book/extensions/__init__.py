"""Extensions of Sphinx that only this book needs; `_config.yml` lists them."""
