"""Test that secrets are hidden, and that other texts are left alone."""

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
        ("--pw X --oauth2-bearer Y sig=Z", "--pw … --oauth2-bearer … sig=…"),
        ("-pX1 -p '8080' -uroot", "-p… -p 8080 -uroot"),
        ("--login bob:X --user=bob:Y -u bob:Z", "--login bob:… --user=bob:… -u bob:…"),
        ("""--config='{"password":"X","lr":1}'""", '--config={"password":"…","lr":1}'),
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
        "-p8080 -pretrained -p/dev/sda -p0.5 -patience=3 --user 1000:1000 --login bob -x u:v --time 12:30",
    ],
)
def test_what_only_sounds_like_one_is_left_alone(line):
    assert redact_words(shlex.split(line)) == shlex.split(line)


def test_a_line_for_a_shell_is_read_too():
    assert redact_words(["sh", "-c", "python t.py --password 'two words' --lr 1;  HF_TOKEN=x  run \"a b\""]) == [
        "sh", "-c", 'python t.py --password … --lr 1;  HF_TOKEN=…  run "a b"',
    ]  # fmt: skip
    assert redact_words(["-H", "Authorization: Bearer abc"]) == ["-H", "Authorization: Bearer …"]


TEXTS = [
    "psycopg.OperationalError: postgres://bob:{}@db: refused",
    "ValueError: bad dsn: host=db password={} dbname=x",
    "KeyError: password: {}",
    "TypeError: connect(host='db', password='{}', db=1)",
    "ValueError: {{'user': 'bob', 'api_key': '{}', 'token': 12}}",
    'ValueError: {{"secret": "{}", "lr": 0.1}}',
    'ValueError: "{{\\"password\\": \\"{}\\"}}"',
    "HTTPError: 403 for https://h/b?sig={}&part=1",
    "HTTPError: Authorization: Basic {}",
    "HTTPError: X-Api-Key: {}",
    "AuthenticationError: invalid API key: {}",
    "CalledProcessError: Command '['psql', '--pw', '{}', '-x']' returned 1",
    "CalledProcessError: Command '['curl', '--login', 'bob:{}']' returned 1",
    "CalledProcessError: Command 'curl --oauth2-bearer {} https://h' returned 1",
    "CalledProcessError: Command 'mysql -p{} -h db' returned 1",
]
SECRETS = st.text(st.sampled_from("abcXYZ019!$%^*+~-_"), min_size=6, max_size=20).map(lambda text: f"Pw7{text}Q")


@pytest.mark.parametrize("text", TEXTS)
@given(secret=SECRETS)
def test_whatever_the_secret_in_what_a_program_wrote_it_is_hidden_alone(text, secret):
    shown = redact_text(text.format(secret))
    assert shown == text.format(HIDDEN)
    assert redact_text(shown) == shown


@pytest.mark.parametrize("shape", ["ghp_{}", "hf_{}", "sk-{}", "AKIA{}"])
def test_a_token_is_known_by_its_shape(shape):
    assert (
        redact_text(f"OSError: 401 for {shape.format('0aB' * 8)}: denied")
        == f"OSError: 401 for {shape.format(HIDDEN)}: denied"
    )


@pytest.mark.parametrize(
    "text",
    [
        "RuntimeError: Unexpected key(s) in state_dict: 'fc.weight'; unexpected key: fc.weight",
        "JSONDecodeError: Unexpected token: ',' at line 3; KeyError: 'token'; pass: 3",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0: 79.15 GiB)",
        'File "/a/tokens.py", line 3, in get_password',
        "ValueError: sort_key=length num_tokens=5 max_token=7 tokenizer=bert key=3",
    ],
)
def test_a_sentence_that_speaks_of_keys_and_tokens_is_left_alone(text):
    assert redact_text(text) == text


def test_variables_are_hidden_by_name_and_by_what_they_hold():
    given_ = {"HF_TOKEN": "x", "OMP_NUM_THREADS": "4", "DATABASE_URL": "pg://u:p@h/d", "PWD": "/", "API_KEY": ""}
    shown = {"HF_TOKEN": "…", "OMP_NUM_THREADS": "4", "DATABASE_URL": "pg://u:…@h/d", "PWD": "/", "API_KEY": ""}
    assert redact_variables(given_) == shown


@given(st.lists(st.text(max_size=30) | st.text(st.sampled_from("-p=:'\\\"uK? /&,@password"), max_size=30)))
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
        (f"-p{HIDDEN}", f"-p{HIDDEN}"),
        (f"--login bob:{HIDDEN}", f"bob:{HIDDEN}"),
    ],
)
def test_what_was_hidden_is_found_again(line, name):
    assert hidden_name(line.split()) == name


@pytest.mark.parametrize("unit", ["-pa=", "-a=", "-p.", "-u a"])
def test_a_long_line_takes_time_in_proportion_to_its_length(unit):
    """A pattern that reads the rest of the line at each place would take longer than the limit of a test."""
    text = unit * 200_000
    assert redact_text(f"{text} --token hunter2").endswith(" --token …")
