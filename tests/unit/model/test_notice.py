"""The options --mail-type and --mail-user, as client and daemon read them."""

from __future__ import annotations

import pytest

from nodectl.model import notice


def test_events_are_read_in_any_case_and_all_stands_for_most() -> None:
    assert notice.mail_types("end,Fail") == ("END", "FAIL")
    assert notice.mail_types("ALL,TIME_LIMIT_80,END") == ("BEGIN", "END", "FAIL", "REQUEUE", "IDLE", "TIME_LIMIT_80")
    assert notice.mail_types("ALL,NONE") == ()
    assert notice.mail_types("INVALID_DEPEND,STAGE_OUT,ARRAY_TASKS") == ("ARRAY_TASKS",)


@pytest.mark.parametrize("text", ["", "ENDS", "END,", "END FAIL"])
def test_an_unknown_event_is_refused_with_all_that_are_known(text: str) -> None:
    with pytest.raises(ValueError, match=r"Invalid event .*TIME_LIMIT_80"):
        notice.mail_types(text)


def test_addresses_are_names_of_users_or_of_others_elsewhere() -> None:
    assert notice.addresses("ann,a.b+c_d%e@x-1.example.org,_daemon") == ("ann", "a.b+c_d%e@x-1.example.org", "_daemon")


@pytest.mark.parametrize(
    "text",
    ["", "-f", "-oQ/tmp@x", ".a", "a@", "@b", "a@-b", "a@b-", "a@b@c", "a b", "a;b", "a|b", "$(a)", "`a`", "a\n", "a\0",
     "a@b\nBcc: c", '"a"@b', "<a@b>", "/etc/passwd", ":include:/x", "é@b", "a" * 65, "a@" + "b" * 254,
     ",".join("a" * 9)],
)  # fmt: skip
def test_what_could_mean_more_than_an_address_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="address"):
        notice.addresses(text)
