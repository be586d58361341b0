"""What looks like a secret is hidden, and what does not is left alone."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddpmon.redaction import HIDDEN, hidden_name, redact_text, redact_variables, redact_words


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("--password hunter2 --lr 0.1", "--password … --lr 0.1"),
        ("--password=hunter2", "--password=…"),
        ("--password 123456", "--password …"),
        ("--api-key=X y", "--api-key=… y"),
        ("--api_key X", "--api_key …"),
        ("-token X", "-token …"),
        ("--wandb.apiKey X", "--wandb.apiKey …"),
        ("env HF_TOKEN=X AWS_SECRET_ACCESS_KEY=Y python t.py", "env HF_TOKEN=… AWS_SECRET_ACCESS_KEY=… python t.py"),
        ("model.api_key=X +trainer.password=Y ++a.secret=Z", "model.api_key=… +trainer.password=… ++a.secret=…"),
        ("--url postgres://u:p@ss@host/db", "--url postgres://u:…@host/db"),
        ("--url=redis://:p@host", "--url=redis://:…@host"),
        ("https://ghp_X@github.com/a", "https://…@github.com/a"),
        ("s3://b/c?X-Amz-Signature=X&part=1&token=Y#z", "s3://b/c?X-Amz-Signature=…&part=1&token=…#z"),
        ("PGPASSWORD=X MYSQL_PWD=Y", "PGPASSWORD=… MYSQL_PWD=…"),
        ("--password '' --secret -x", "--password … --secret …"),
    ],
)
def test_secrets_are_hidden(line, shown):
    assert redact_words(shlex.split(line)) == shown.split()


@pytest.mark.parametrize(
    "line",
    [
        "--tokenizer bert-base --key-dim 64 --num-tokens 5 --max-token 5 --monkey wrench monkey",
        "--pad-token <pad> --sort-key length --keys a,b --token-dim 4 --passes 3 --n-pass 2 --compass north",
        "--author bob --keyboard us --secretary ann --password-file /run/secret --token-path /x --key-size 2048",
        "--password --lr 1",
        "PWD=/home/me OLDPWD=/tmp KEYBOARD=us",
        "https://host:8080/a@b ssh://git@host/repo tcp://10.0.0.1:29500 a@b.c user:pass --x=y:z@w",
        "--key 3 --token 0 --pass 2 --auth none",
    ],
)
def test_what_only_sounds_like_one_is_left_alone(line):
    assert redact_words(shlex.split(line)) == shlex.split(line)


def test_a_line_for_a_shell_is_read_too():
    assert redact_words(["sh", "-c", "python t.py --password 'two words' --lr 1;  HF_TOKEN=x  run \"a b\""]) == [
        "sh", "-c", 'python t.py --password … --lr 1;  HF_TOKEN=…  run "a b"',
    ]  # fmt: skip
    assert redact_words(["-H", "Authorization: Bearer abc"]) == ["-H", "Authorization: Bearer …"]


def test_variables_are_hidden_by_name_and_by_what_they_hold():
    given_ = {"HF_TOKEN": "x", "OMP_NUM_THREADS": "4", "DATABASE_URL": "pg://u:p@h/d", "PWD": "/", "API_KEY": ""}
    shown = {"HF_TOKEN": "…", "OMP_NUM_THREADS": "4", "DATABASE_URL": "pg://u:…@h/d", "PWD": "/", "API_KEY": ""}
    assert redact_variables(given_) == shown


@given(st.lists(st.text(max_size=30)))
def test_any_words_stay_as_many_and_hiding_twice_changes_nothing(words):
    once = redact_words(words)
    assert len(once) == len(words)
    assert redact_words(once) == once
    assert redact_text(redact_text(" ".join(words))) == redact_text(" ".join(words))


@pytest.mark.parametrize(
    ("line", "name"),
    [
        (f"--lr 1 --password {HIDDEN}", "--password"),
        (f"HF_TOKEN={HIDDEN}", "HF_TOKEN"),
        (f"pg://u:{HIDDEN}@h", f"pg://u:{HIDDEN}@h"),
        (f"--note {HIDDEN} --title=a{HIDDEN}", None),
    ],
)
def test_what_was_hidden_is_found_again(line, name):
    assert hidden_name(line.split()) == name
