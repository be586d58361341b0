"""Hides secrets in command lines, variables and free text. Standard library only.

`redact_words` is for argument lists, `redact_text` for everything that people or programs wrote: exceptions, log lines.
Both hide the value after the name of a secret, however the two are joined:

- `--password X`, `--api-key=X`, `HF_TOKEN=X`, `"password": "X"`, `password: X`, `sig=X`, `-pX`. A name is split into
  words, so `--tokenizer`, `--key-dim`, `--num-tokens` and `monkey` do not name secrets. Before a colon in a sentence, a
  single KEY or TOKEN does not either ("unexpected key: fc.weight");
- logins and addresses: `--login user:X`, `user:X@host`, `https://X@host`, `?token=X`;
- `Bearer X`, and values recognized by their form: `ghp_X`, `hf_X`, `sk-X`, `AKIAX`.

A number after a name with KEY, TOKEN or PASS is not a secret (`--pad-token 0`); after PASSWORD or SECRET it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

HIDDEN = "…"
"""Text that replaces a hidden value."""
MIN_VALUE = 6
"""Smallest number of characters of a known secret that is hidden wherever it occurs."""

_STRONG = frozenset(
    {
        *("password", "passwords", "passwd", "passphrase", "passcode"),
        *("secret", "secrets", "credential", "credentials", "authorization"),
    }
)
_WEAK = frozenset(
    {"token", "key", "apikey", "pwd", "pw", "pass", "auth", "bearer", "jwt", "cookie", "sig", "signature"}
)
"""Words that mark a name as a secret only if they are its last word: `api_key` is a secret, `key_dim` is not."""
_JOINED = (*sorted(_STRONG), "apikey", "accesskey", "secretkey", "privatekey", "accesstoken", "authtoken")
"""Endings that mark a name written as one word, such as PGPASSWORD, as a secret."""
_ABOUT = frozenset(
    {"file", "path", "dir", "name", "id", "len", "length", "dim", "size", "count", "type", "ttl", "timeout", "env"}
)
"""Last words of names that only describe a secret, such as `password_file`."""
_NO_SECRETS = frozenset({"pwd", "oldpwd"})
"""Names of the working folder, which every environment has."""
_PLAIN_TOKENS = frozenset(
    {"num", "n", "max", "min", "per", "pad", "eos", "bos", "unk", "mask", "sep", "cls", "special", "stop", "image"}
)
"""Words before "token" that make it a unit of text, as in `max_token`."""
_PLAIN_KEYS = frozenset({"sort", "group", "dict", "label", "text", "image", "input", "target", "public"})
"""Words before "key" that make it an identifier and not a secret, as in `sort_key`."""

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_NUMBER = re.compile(r"[+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?|true|false|none|null", re.IGNORECASE)
_ASSIGNED = re.compile(r"(-{0,2}\+{0,2}[A-Za-z_][\w.\-/]*)=(.*)", re.DOTALL)
_OPTION = re.compile(r"--?[A-Za-z][\w.\-]*")
_PIECES = re.compile(r"\s+|(?:'[^']*'|\"[^\"]*\"|[^\s'\"]|['\"])+")
_USER = re.compile(r"(?<![\w+.-])([A-Za-z][\w+.-]*://[^\s/:@]*):[^\s/]+@")
_USER_ALONE = re.compile(r"(https?://)[^\s/:@]+@")
_QUERY = re.compile(r"([?&]([\w.-]+)=)([^&#\s'\"]+)")
_BEARER = re.compile(r"\b(bearer\s+)[^\s'\"]+", re.IGNORECASE)
_SHAPED = re.compile(r"\b(gh[opsur]_|github_pat_|glpat-|hf_|sk-|xox[abprs]-|AKIA|eyJ)[\w.\-]{16,}")
"""Tokens of GitHub, GitLab, Hugging Face, OpenAI, Slack, AWS, and web tokens."""
_NAMED = re.compile(
    r"""(?<![\w.\-/?&+])(?P<quote>\\{0,4}['"])?
        (?P<name>-{0,2}(?:(?:api|access|secret|private|auth)[ ])?[A-Za-z_][\w.\-/]*+)
        (?P<sign>(?:\\{0,4}['"])?\s*[=:]\s*)(?:(?:basic|bearer|digest|token)\s+)?""",
    re.VERBOSE | re.IGNORECASE,
)
"""A name before its value: an assignment, an entry of JSON or of a dict's repr, a header."""
_VALUE = re.compile(r"""([bfru]?\\{0,4}['"])((?:(?!\\{0,4}['"]).)+)|()([^\s'"\\][^\s'"]*)""")
"""A value in quotes, up to the end of the line if the text was cut, or a value without quotes."""
_FOLLOWED = re.compile(
    r"""(?<![\w.\-])(?P<name>--?[A-Za-z][\w.\-]*+)((?:\\{0,4}['"])?,?\s+(?:\\{0,4}['"])?)((?!--)[^\s'"\\]+)"""
)
"""An option and what follows it, also in the repr of a list."""
_LOGIN = re.compile(
    r"""(?<![\w.\-])(?P<name>--?[A-Za-z][\w.\-]*+)
        ((?:\\{0,4}['"])?,?[\s=]+(?:\\{0,4}['"])?)([^\s:'"\\/]{1,256}):([^\s'"\\]+)""",
    re.VERBOSE,
)
"""An option and USER:PASSWORD. The limit of the user's length keeps the time linear on a long line."""
_LOGINS = frozenset({"login", "user", "username", "userpass", "account", "u"})
"""Last words of options whose value may be USER:PASSWORD."""
_ATTACHED = re.compile(
    r"""(?<![\w\-])-p
        (?![a-z]+(?:[-_.=][\w.\-=]{0,256}+)?(?![^\s'"\\,])|[\d.:]+(?![^\s'"\\,])|[/.~…])[^\s'"\\,]+""",
    re.VERBOSE,
)
"""A password after -p, as mysql takes it; not a number, a path or a word of lower-case letters (-p8080,
-pretrained)."""
_PRIVATE_KEY = r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
_AFTER_VALUE = ",;)]}"
"""Characters that end the value of an assignment in a call, a set or a sentence, and do not belong to it."""


def is_secret(name: str, value: str = "") -> bool:
    """Return whether the value of an option or a variable with this name must be hidden."""
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
    """Return a command line without its secrets."""
    redacted: list[str] = []
    option = ""
    for word in words:
        if option and not word.startswith("--") and is_secret(option, word):
            redacted.append(HIDDEN)
        elif option and _is_login(option, *word.partition(":")):
            redacted.append(f"{word.partition(':')[0]}:{HIDDEN}")
        else:
            redacted.append(_redact_word(word))
        option = redacted[-1] if _OPTION.fullmatch(redacted[-1]) else ""
    return redacted


def redact_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without its secrets."""
    return {
        name: HIDDEN if value and is_secret(name, value) else redact_text(value) for name, value in variables.items()
    }


def redact_text(text: str) -> str:
    """Return a text by a person or a program without its secrets."""
    text = _USER_ALONE.sub(rf"\1{HIDDEN}@", _USER.sub(rf"\1:{HIDDEN}@", text))
    text = _BEARER.sub(rf"\1{HIDDEN}", text)
    text = _QUERY.sub(lambda match: match[1] + (HIDDEN if is_secret(match[2], match[3]) else match[3]), text)
    text = _ATTACHED.sub(f"-p{HIDDEN}", text)
    for pattern, hide in ((_NAMED, _hide_named), (_FOLLOWED, _hide_followed), (_LOGIN, _hide_password)):
        text = _replaced(pattern, hide, text)
    return _SHAPED.sub(rf"\1{HIDDEN}", text)


def secret_values(words: Sequence[str], variables: Mapping[str, str]) -> set[str]:
    """Return the values that `redact_words` and `redact_variables` hide, to search for them in other texts."""
    pairs = [*zip(words, redact_words(words), strict=True)]
    pairs += [(value, redact_variables({name: value})[name]) for name, value in variables.items()]
    found: set[str] = set()
    for value, redacted in pairs:
        shown = "(.+?)".join(map(re.escape, redacted.split(HIDDEN)))
        if value != redacted and (match := re.fullmatch(shown, value, re.DOTALL)):
            found.update(match.groups())
    return found


class Redactor:
    """Hides everything that looks like a secret, and known values wherever they occur."""

    def __init__(self, values: Iterable[str]) -> None:
        """Prepare to hide the known secrets `values`. Those shorter than 6 characters are ignored: any word may contain
        them.
        """
        known = sorted((re.escape(value) for value in values if len(value) >= MIN_VALUE), key=len, reverse=True)
        self._known = re.compile("|".join([*known, _PRIVATE_KEY]), re.DOTALL)

    def hide_known(self, text: str) -> str:
        """Return a text without the known values and without private keys, which span several lines."""
        return self._known.sub(HIDDEN, text)

    def text(self, text: str) -> str:
        """Return a text without secrets."""
        return redact_text(self.hide_known(text))

    def anything(self, value: Any) -> Any:
        """Return a value that JSON or msgpack can represent, without secrets in its texts."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list | tuple):
            return type(value)(map(self.anything, value))
        if isinstance(value, dict):
            return {self.anything(name): self._field(name, each) for name, each in value.items()}
        return value

    def _field(self, name: object, value: Any) -> Any:
        if isinstance(name, str) and isinstance(value, str) and value and is_secret(name, value):
            return HIDDEN
        return self.anything(value)


def hidden_url(url: str) -> str:
    """Return the URL of a notification service without anything that may be a password: ntfy://…"""
    scheme, separator, _ = url.partition("://")
    return f"{scheme}{separator}{HIDDEN}" if separator else HIDDEN


def hidden_name(words: Sequence[str]) -> str | None:
    """Return the name of the first value in a command line that is already hidden; None if there is none."""
    for at, word in enumerate(words):
        if HIDDEN not in word:
            continue
        typed = [*words[:at], word.replace(HIDDEN, "Xx0Xx0Xx0Xx0Xx0Xx0")]
        if redact_words(typed)[at] == word:
            assigned = _ASSIGNED.fullmatch(word)
            return words[at - 1] if word == HIDDEN else assigned[1] if assigned and assigned[2] == HIDDEN else word
    return None


def _redact_word(word: str) -> str:
    assigned = _ASSIGNED.fullmatch(word)
    if assigned and assigned[2] and is_secret(assigned[1], assigned[2]):
        return f"{assigned[1]}={HIDDEN}"
    pieces = _PIECES.findall(word)
    if len(pieces) > 1:  # The word is a command line for a shell.
        texts = [piece for piece in pieces if not piece.isspace()]
        hidden = iter(redact_words(texts))
        word = "".join(piece if piece.isspace() else next(hidden) for piece in pieces)
    return redact_text(word)


def _replaced(pattern: re.Pattern[str], hide: Callable[[re.Match[str]], tuple[str, int] | None], text: str) -> str:
    """Replace the secrets that `hide` finds in matches of a pattern.

    `hide` returns the replacement of a match, and the match's end in the text. If `hide` returns None, the search
    continues after the name of the match, because the next word may be a name too.
    """
    parts: list[str] = []
    done = at = 0
    while match := pattern.search(text, at):
        hidden = hide(match)
        if hidden is None:
            at = match.end("name")
            continue
        parts += text[done : match.start()], hidden[0]
        done = at = hidden[1]
    return "".join(parts) + text[done:]


def _hide_named(match: re.Match[str]) -> tuple[str, int] | None:
    name, sign = match["name"], match["sign"]
    words = [word.lower() for word in _WORD.findall(name)]
    in_sentence = ":" in sign and not match["quote"] and len(words) == 1 and _STRONG.isdisjoint(words)
    if in_sentence or not is_secret(name) or not (found := _VALUE.match(match.string, match.end())):
        return None
    quote, quoted, _, bare = found.groups(default="")
    value = quoted or bare.rstrip(_AFTER_VALUE)
    if not value or not is_secret(name, value):
        return None
    return f"{match[0]}{quote}{HIDDEN}", match.end() + len(quote) + len(value)


def _hide_followed(match: re.Match[str]) -> tuple[str, int] | None:
    return (f"{match[1]}{match[2]}{HIDDEN}", match.end()) if is_secret(match[1], match[3]) else None


def _hide_password(match: re.Match[str]) -> tuple[str, int] | None:
    option, between, user, password = match.groups()
    if not _is_login(option, user, ":", password):
        return None
    return f"{option}{between}{user}:{HIDDEN}", match.end()


def _is_login(option: str, user: str, colon: str, password: str) -> bool:
    """Return whether the value of an option is a user and a password. Two numbers are user and group ids."""
    words = [word.lower() for word in _WORD.findall(option)]
    numbers = user.isdecimal() and password.isdecimal()
    return bool(words and user and colon and password) and words[-1] in _LOGINS and "/" not in user and not numbers
