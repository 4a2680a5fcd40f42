"""What the vm ring types: the commands of README and the guides. Checked here, because the ring types them rarely."""

from __future__ import annotations

import pytest

from vm import pages, test_readme
from vm.reader import NOT_HERE, README, followed

pytestmark = pytest.mark.lint


def test_every_command_of_the_pages_is_followed_or_named_with_a_reason() -> None:
    assert test_readme.__name__  # which has noted what it follows
    printed = {
        (page, title): lines for page in (README, *pages.guides()) for title, lines in pages.commands(page).items()
    }
    assert {section for section, lines in printed.items() if not set(lines) <= set(NOT_HERE)} == followed
    assert set(NOT_HERE) <= {line for lines in printed.values() for line in lines}
