"""Which texts of ended jobs the service keeps: the latest of each user, by number and by size."""

from __future__ import annotations

from nodectl.service.daemon.controller.ended_texts import EndedTexts


def test_the_oldest_texts_of_a_user_make_room_and_no_other_users() -> None:
    texts = EndedTexts(2, 1000)
    assert [list(texts.add(job, uid, 10)) for job, uid in ((1, 7), (2, 8), (3, 7), (4, 7), (5, 7))] == [
        [], [], [], [1], [3],
    ]  # fmt: skip


def test_the_bytes_of_a_user_are_limited_too() -> None:
    texts = EndedTexts(100, 1000)
    assert list(texts.add(1, 7, 600)) == []
    assert list(texts.add(2, 7, 500)) == [1]
    assert list(texts.add(3, 7, 5000)) == [2, 3]


def test_none_is_kept_where_none_may_be() -> None:
    assert list(EndedTexts(0, 1000).add(1, 7, 1)) == [1]
