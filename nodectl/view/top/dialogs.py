"""The dialogs above the table: a text, a choice, the output of a step."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Sequence
from typing import ClassVar

from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical, VerticalScroll
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import OptionList, RichLog, Static
from textual.widgets.option_list import Option
from textual.worker import get_current_worker

from nodectl.client.command import Failed
from nodectl.model.words import printable
from nodectl.view.live.view import Row
from nodectl.view.top.service import Connect
from nodectl.view.top.stream import Stream

_CLOSE: list[BindingType] = [("escape,q", "dismiss", "Close")]
_KEPT = 5000  # lines of a step's output
_PAUSE = 0.1  # seconds between two pieces: too fast a writer is held up, not this command
_WAIT = 200  # milliseconds between checks whether the dialog is still open


class Reading(ModalScreen[None]):
    """A dialog with lines to read and to scroll."""

    BINDINGS: ClassVar[list[BindingType]] = _CLOSE

    def __init__(self, title: str, lines: Iterable[str]) -> None:
        super().__init__()
        self._title = title
        self._lines = list(lines)

    def compose(self) -> ComposeResult:
        """Yield a frame with the text inside."""
        with VerticalScroll(classes="dialog") as frame:
            frame.border_title = Text(self._title)  # [0-4] is no markup
            frame.border_subtitle = "Esc closes"
            yield Static(Text("\n".join(self._lines)))


class Choice(ModalScreen[str]):
    """A dialog to choose from a list; Esc chooses nothing."""

    BINDINGS: ClassVar[list[BindingType]] = _CLOSE

    def __init__(self, title: str, choices: Sequence[tuple[str, str]]) -> None:
        super().__init__()
        self._title = title
        self._choices = choices

    def compose(self) -> ComposeResult:
        """Yield the list."""
        with Vertical(classes="dialog small") as frame:
            frame.border_title = Text(self._title)  # [0-4] is no markup
            frame.border_subtitle = "Enter chooses, Esc closes"
            yield OptionList(*(Option(Text(words), id=name) for name, words in self._choices))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Close the dialog with the chosen option."""
        self.dismiss(event.option_id)


class Output(ModalScreen[None]):
    """A dialog with the output of a step's tasks, as in `nodectl attach`, without input."""

    BINDINGS: ClassVar[list[BindingType]] = _CLOSE

    class Piece(Message):
        """A message with lines of output, or a note about the output."""

        def __init__(self, lines: list[str]) -> None:
            super().__init__()
            self.lines = lines

    def __init__(self, connect: Connect, row: Row) -> None:
        super().__init__()
        self._connect = connect
        self._row = row

    def compose(self) -> ComposeResult:
        """Yield the log."""
        log = RichLog(max_lines=_KEPT, min_width=0, wrap=True, classes="dialog")
        log.border_title = Text(f"output of step {self._row.name}")
        log.border_subtitle = "Esc closes"
        yield log

    def on_mount(self) -> None:
        """Begin to read."""
        self.query_one(RichLog).focus()
        self._read()

    def on_output_piece(self, piece: Piece) -> None:
        """Show the lines."""
        for log in self.query(RichLog):  # none where the dialog has just been closed
            for line in piece.lines:
                log.write(Text(line))

    @work(thread=True)
    def _read(self) -> None:
        try:
            session = self._connect()
            try:
                _, fd = session.view(self._row.job, self._row.step or 0)
            finally:
                session.close()
        except Failed as failed:
            self.post_message(self.Piece([printable(str(failed))]))
            return
        worker = get_current_worker()
        stream = Stream(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, fd))
        while stream.is_open and not worker.is_cancelled:
            lines = stream.read(_WAIT)
            if lines:
                self.post_message(self.Piece(lines))
                time.sleep(_PAUSE)
        if stream.is_open:
            stream.close()
        else:
            self.post_message(self.Piece(["-- no more is written --"]))
