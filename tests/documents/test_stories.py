"""The code that runs the documentation finds every fault of a page."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead import BadConfig
from tests.documents.blocks import PageBroken, blocks
from tests.documents.fleet_terminal import NotShown
from tests.documents.interpreter import StoryBroken
from tests.documents.stories import Story
from tests.documents.transcripts import alike, commands

SHOP = """\
```python title="shop.py"
import fairlead

app = fairlead.App("embedded:./data")


@app.handler("receipt")
def send_receipt(job):
    print("sent", job.payload)
```
"""


@pytest.fixture
def story(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Story]:
    folder = tmp_path / "shop"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    story = Story("page.md", folder)
    yield story
    story.close()


def run(story: Story, page: str) -> None:
    for block in blocks(page):
        story.run(block)


def test_a_page_of_all_languages_is_run(story: Story) -> None:
    run(
        story,
        SHOP
        + """
```pycon
>>> from shop import app
>>> app.tenant("shop", "alice").enqueue("receipt", 7, item_id="order-7").status
<EnqueueStatus.ENQUEUED: 'enqueued'>
```
```console
$ fairlead peek --tenant shop/alice --app shop:app
...
1 of 1 items
$ fairlead cancel order-8 --tenant shop/alice --app shop:app  # exits with 4
Error: the item is gone...
  Do: ...
$ fairlead run shop:app --runtime threads
running the kind receipt
sent 7
```
```python
app.tenant("shop", "alice").enqueue("receipt", 8)
```
```text title="the fleet's terminal"
sent 8
^Cdraining: ...
completed 2  ...
```
```toml title="fairlead.toml"
consumer.slots = 32
```
```console
$ fairlead config | grep slots
consumer.slots  32  fairlead.toml
```
```yaml
cluster_name: fairlead
```
```ini
[Service]
ExecStart=/usr/bin/fairlead run shop:app --runtime threads
```
""",
    )


@pytest.mark.parametrize(
    "page",
    [
        "```pascal\nbegin end.\n```\n",
        "```\nfairlead status\n```\n",
        "```python\nassert 1 == 2\n```\n",
        '```python title="shop.py"\n1 +\n```\n',
        "```pycon\n>>> 1 + 1\n3\n```\n",
        "```pycon\n1 + 1\n```\n",
        "```console\n$ echo hello\ngood bye\n```\n",
        "```console\n$ echo hello\n```\n",
        "```console\n$ exit 3\n```\n",
        "```console\nfairlead status\n```\n",
        "```console\n$ fairlead peek --tenant shop/alice --store embedded:none\n```\n",
        "```text\nanything\n```\n",
        "```toml\n[consumer]\nslotz = 3\n```\n",
        "```yaml\ncluster_name: another\n```\n",
        "```yaml\nsetup_commands:\n  - reboot\n```\n",
        "```ini\n[Service]\nExecStart=/usr/bin/fairlead walk shop:app\n```\n",
    ],
)
def test_a_block_that_does_not_do_what_it_says_is_found(story: Story, page: str) -> None:
    with pytest.raises((StoryBroken, SyntaxError, ValueError, BadConfig)):
        run(story, page)


def test_a_fleet_that_shows_something_else_is_found(story: Story) -> None:
    with pytest.raises(NotShown, match="No such option"):
        run(story, SHOP + "```console\n$ fairlead run shop:app --fast\nrunning the kind receipt\n```\n")


@pytest.mark.parametrize(
    "page",
    [
        "~~~python\n1\n~~~\n",
        "````python\n1\n````\n",
        "```python hl_lines=1\n1\n```\n",
        "```python\n1\n",
        "Text.\n\n    indented = code\n",
        "<!-- skip -->\n```python\n1\n```\n",
    ],
)
def test_what_cannot_be_read_as_a_block_is_refused(page: str) -> None:
    with pytest.raises(PageBroken):
        blocks(page)


def test_a_block_says_its_line_its_file_and_why_it_is_not_run() -> None:
    page = (
        "Text\n\n<!-- not run: costs money -->\n```console\n$ buy\n```\n- list\n\n"
        "<!-- run by tests/test_that.py -->\n```text\nthat\n```\n"
        "    ```python\n    # a.py\n    1\n    ```\n"
    )
    bought, other, written = blocks(page)
    assert (bought.line, bought.not_run, bought.text) == (4, "costs money", "$ buy\n")
    assert (other.run_by, other.not_run) == ("tests/test_that.py", None)
    assert (written.file, written.text, written.not_run) == ("a.py", "# a.py\n1\n", None)


def test_dots_stand_for_what_varies_and_for_nothing_else() -> None:
    assert alike("a ... c\n", "a b c\n")
    assert alike("...\nlast\n", "first\nsecond\nlast\n")
    assert alike("first\n...\n", "first\n")
    assert not alike("first\n", "first\nsecond\n")
    assert not alike("a.c\n", "abc\n")


def test_a_command_ends_with_what_its_comment_says() -> None:
    assert [each.exit_code for each in commands("$ false  # exits with 1\nx\n$ true\n")] == [1, 0]
