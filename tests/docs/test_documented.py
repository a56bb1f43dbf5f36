"""Examples are found, with their marks; none slips through."""

import pytest

from documented import Block, commands_of, read_blocks

PAGE = """# Title

<!-- not run: needs a GPU -->
```sh
dcnn train gpu.csv
```

- in a list

    ```python
    if True:
        print(1)
    ```

    ```
    1
    ```

<!-- slow: an hour -->

```sh
dcnn train a.csv \\
  --out m
```

A sentence, and then an output that belongs to no example.

```
2
```

<!-- not run: -->
```sh
dcnn demo
```
"""


def test_blocks_have_their_lines_marks_and_outputs():
    found = read_blocks("page.md", PAGE)
    assert [(b.line, b.language, b.mark, b.reason) for b in found] == [
        (5, "sh", "not run", "needs a GPU"),
        (11, "python", "", ""),
        (16, "", "", ""),
        (22, "sh", "slow", "an hour"),
        (29, "", "", ""),
        (34, "sh", "", ""),  # a mark without a reason is none, so this one is run
    ]
    assert found[1].text == "if True:\n    print(1)\n"
    assert [b.output for b in found] == [None, "1\n", None, None, None, None]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("dcnn predict m 'a b' # why", [(("dcnn", "predict", "m", "a b"), False, "")]),
        (
            "cat x | dcnn predict m > out.tsv",
            [(("cat", "x"), False, ""), (("dcnn", "predict", "m"), True, "out.tsv")],
        ),
        ("curl 'http://a/b?c=1&d=2'", [(("curl", "http://a/b?c=1&d=2"), False, "")]),
        ("make a && make b", [(("make", "a"), False, ""), (("make", "b"), False, "")]),
        ("dcnn train \\\n  d.csv", [(("dcnn", "train", "d.csv"), False, "")]),
    ],
)
def test_a_line_is_taken_apart_as_a_shell_does(line, expected):
    commands = commands_of(Block("page.md", 1, "sh", line))
    assert [(c.words, c.piped, c.into) for c in commands] == expected


def test_variables_are_set_for_their_command_alone():
    (command,) = commands_of(Block("page.md", 1, "sh", "DCNN_BACKEND=torch dcnn train d.csv"))
    assert command.variables == (("DCNN_BACKEND", "torch"),)
    assert command.words == ("dcnn", "train", "d.csv")
