"""What looks like a secret in a command line or a variable, and its hiding. Standard library only.

Hidden are the values of

- options, variables and KEY=VALUE words that are named after secrets: `--password X`, `--api-key=X`, `HF_TOKEN=X`,
  `model.api_key=X`. The name is read as words, so `--tokenizer`, `--key-dim`, `--num-tokens` and `monkey` are none;
- addresses: `user:X@host`, `https://X@host`, `?token=X`.

A number behind a name with KEY, TOKEN or PASS is none either (`--pad-token 0`); behind PASSWORD or SECRET it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

HIDDEN = "…"
"""What stands in the place of a value."""

_STRONG = frozenset({"password", "passwd", "passphrase", "passcode", "secret", "secrets", "credential", "credentials"})
_WEAK = frozenset({"token", "key", "apikey", "pwd", "pass", "auth"})
"""Secret only as the last word of a name: a key's width and a token's name are none."""
_JOINED = (*sorted(_STRONG), "apikey", "accesskey", "secretkey", "privatekey", "accesstoken", "authtoken")
"""Ends of names that are written as one word: PGPASSWORD."""
_ABOUT = frozenset(
    {"file", "path", "dir", "name", "id", "len", "length", "dim", "size", "count", "type", "ttl", "timeout", "env"}
)
"""A name that ends so is of something about a secret."""
_NO_SECRETS = frozenset({"pwd", "oldpwd"})
"""The working folder in every environment."""
_PLAIN_TOKENS = frozenset(
    {"num", "n", "max", "min", "per", "pad", "eos", "bos", "unk", "mask", "sep", "cls", "special", "stop", "image"}
)
"""What stands before "token" where it is a piece of text."""
_PLAIN_KEYS = frozenset({"sort", "group", "dict", "label", "text", "image", "input", "target", "public"})
"""What stands before "key" where it names something."""

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_NUMBER = re.compile(r"[+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?|true|false|none|null", re.IGNORECASE)
_ASSIGNED = re.compile(r"(-{0,2}\+{0,2}[A-Za-z_][\w.\-/]*)=(.*)", re.DOTALL)
_OPTION = re.compile(r"--?[A-Za-z][\w.\-]*")
_PIECES = re.compile(r"\s+|(?:'[^']*'|\"[^\"]*\"|[^\s'\"]|['\"])+")
_USER = re.compile(r"([A-Za-z][\w+.-]*://[^\s/:@]*):[^\s/]+@")
_USER_ALONE = re.compile(r"(https?://)[^\s/:@]+@")
_QUERY = re.compile(r"([?&]([\w.-]+)=)([^&#\s]+)")
_BEARER = re.compile(r"\b(bearer\s+)\S+", re.IGNORECASE)


def is_secret(name: str, value: str = "") -> bool:
    """Whether the value of an option or a variable of this name is to be hidden."""
    words = [word.lower() for word in _WORD.findall(name)]
    if not words or words[-1] in _ABOUT or "".join(words) in _NO_SECRETS:
        return False
    if not _STRONG.isdisjoint(words) or words[-1].endswith(_JOINED):
        return True
    if words[-1] not in _WEAK or _NUMBER.fullmatch(value):
        return False
    before = words[-2] if len(words) > 1 else ""
    return before not in (_PLAIN_TOKENS if words[-1] == "token" else _PLAIN_KEYS)


def redact_words(words: Sequence[str]) -> list[str]:
    """A command line without its secrets."""
    redacted: list[str] = []
    option = ""
    for word in words:
        if option and not word.startswith("--") and is_secret(option, word):
            redacted.append(HIDDEN)
        else:
            redacted.append(_redact_word(word))
        option = word if _OPTION.fullmatch(word) else ""
    return redacted


def redact_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """An environment without its secrets."""
    return {
        name: HIDDEN if value and is_secret(name, value) else redact_text(value) for name, value in variables.items()
    }


def redact_text(text: str) -> str:
    """A text without the secrets of the addresses in it."""
    text = _USER_ALONE.sub(rf"\1{HIDDEN}@", _USER.sub(rf"\1:{HIDDEN}@", text))
    text = _BEARER.sub(rf"\1{HIDDEN}", text)
    return _QUERY.sub(lambda match: match[1] + (HIDDEN if _in_address(match[2], match[3]) else match[3]), text)


def hidden_name(words: Sequence[str]) -> str | None:
    """The name of the first value in a command line that is hidden already; None if there is none."""
    before = ""
    for word in words:
        assigned = _ASSIGNED.fullmatch(word)
        if word == HIDDEN and is_secret(before, word):
            return before
        if assigned and assigned[2] == HIDDEN and is_secret(assigned[1], HIDDEN):
            return assigned[1]
        if f":{HIDDEN}@" in word or f"//{HIDDEN}@" in word:
            return word
        before = word
    return None


def _redact_word(word: str) -> str:
    assigned = _ASSIGNED.fullmatch(word)
    if assigned and assigned[2] and is_secret(assigned[1], assigned[2]):
        return f"{assigned[1]}={HIDDEN}"
    pieces = _PIECES.findall(word)
    if len(pieces) > 1:  # a line for a shell
        texts = [piece for piece in pieces if not piece.isspace()]
        hidden = iter(redact_words(texts))
        word = "".join(piece if piece.isspace() else next(hidden) for piece in pieces)
    return redact_text(word)


def _in_address(name: str, value: str) -> bool:
    return is_secret(name, value) or name.lower().endswith(("signature", "sig"))
