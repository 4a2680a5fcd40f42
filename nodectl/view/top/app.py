"""The application: the machine on top, the table below, keys at the bottom."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import ClassVar

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.events import Resize
from textual.message import Message
from textual.widgets import DataTable, Footer, Input, Static

from nodectl.client.command import Failed
from nodectl.model.states import SUSPENDED
from nodectl.model.words import byte_words, printable
from nodectl.placement.machine import figures
from nodectl.placement.machine.topology import Topology
from nodectl.view.live.connection import Connections
from nodectl.view.live.view import Row, View
from nodectl.view.live.watcher import Watcher
from nodectl.view.top import columns, picture, service
from nodectl.view.top.dialogs import Choice, Output, Reading
from nodectl.view.top.gpus import GpuReader

THEMES = {"terminal": "ansi-dark", "dark": "textual-dark", "light": "textual-light"}
_SLOW = 3.0  # seconds after which the user is told that the service is slow
_SORTED = ("STEP", "USER", "NAME", "STATE", "TIME", "CPUS", "CPU%", "MEM", "STALL%", "I/O/s")
_SIGNALS = {
    "TERM": "please end", "INT": "as Ctrl-C", "HUP": "the terminal has gone", "USR1": "", "USR2": "",
    "KILL": "end at once, with all that they have started",
}  # fmt: skip
_HELP = (
    "A line is a running step, or a job that waits.",
    "Letters say who is on which core.",
    "",
    "< >    sort by another column",
    "r      turn the order round",
    "/      lines with these words: a user, a name, a state",
    "o      what the step writes (started with --pty, -l or -u)",
    "e      why a job waits; how a step was laid out",
    "s      send the step a signal; cancel the job",
    "z      suspend the step, or let it go on",
    "m      hide the machine, show it",
    "Tab    to the machine, where arrows scroll it, and back",
    "Space  look again now",
    "q      leave",
    "",
    "GPU    how busy each GPU of the machine is, where its",
    "       driver tells (amdgpu; NVIDIA's by nvidia-smi)",
    "CPU%   of one CPU",
    "MEM    what the kernel charges, or what is resident",
    "STALL% how much of the last ten seconds something in the",
    "       step waited for the CPU, for memory or for disks",
    "       (io): the worst of the three",
)
_NOTHING = "Nothing runs, nothing waits: `nodectl run hostname` starts a step, `nodectl submit job.sh` queues a job."


class Top(App[None]):
    """The application.

    Asks the service every `interval` seconds in a thread, so that a hanging service does not stop keys.
    """

    CSS_PATH = None
    CSS = """
    Screen { layout: vertical; }
    #head { height: 1; padding: 0 1; text-style: bold; text-wrap: nowrap; text-overflow: ellipsis; }
    #machine-frame { height: auto; max-height: 40%; padding: 0 1; scrollbar-size-vertical: 1; }
    #machine { width: auto; }
    DataTable { height: 1fr; scrollbar-size-vertical: 1; }
    DataTable:ansi > .datatable--header { background: ansi_blue; color: ansi_bright_white; }
    #nothing { height: auto; padding: 1 1; display: none; }
    #filter { border: none; height: 1; padding: 0 1; display: none; }
    .dialog { border: round $foreground; padding: 0 1; width: 90%; height: 80%; background: $surface; }
    .small { width: 60; height: auto; }
    .small OptionList { height: auto; border: none; }
    Reading, Choice, Output { align: center middle; }
    """
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("greater_than_sign", "sort(1)", "Sort", key_display="<>"),
        Binding("less_than_sign", "sort(-1)", "Sort", show=False),
        Binding("r", "turn", "Turn", show=False),
        Binding("o", "output", "Output"),
        Binding("e", "explain", "Explain"),
        Binding("s", "signal", "Signal"),
        Binding("z", "suspend", "Suspend"),
        Binding("m", "machine", "Machine"),
        Binding("space", "again", "Again", show=False),
        Binding("question_mark", "help", "Help", key_display="?"),
        Binding("escape", "unfilter", "All lines", show=False),
    ]

    class Seen(Message):
        """A message about a finished look at the service."""

        def __init__(self, view: View, now: str) -> None:
            super().__init__()
            self.view = view
            self.now = now

    class Done(Message):
        """A message about the result of a user's request."""

        def __init__(self, words: str, *, failed: bool = False) -> None:
            super().__init__()
            self.words = words
            self.failed = failed

    class Explained(Message):
        """A message with a text about a row."""

        def __init__(self, title: str, lines: list[str]) -> None:
            super().__init__()
            self.title = title
            self.lines = lines

    def __init__(
        self, watcher: Watcher, connections: Connections, topology: Topology, *, interval: float = 1.0,
        theme: str = "terminal",
    ) -> None:  # fmt: skip
        super().__init__()
        self.theme = THEMES[theme]
        self._eight = theme == "terminal"
        self.seen = 0  # the number of looks shown
        self._watcher = watcher
        self._gpus = GpuReader()
        self._connections = connections
        self._connect = connections.connect
        self._topology = topology
        self._interval = interval
        self._view: View | None = None
        self._looking = False
        self._began = 0.0  # monotonic
        self._rows: list[Row] = []
        self._shown: list[tuple[columns.Column, int]] = []
        self._sorted = "STEP"
        self._turned = False
        self._words = ""
        self._head = ""

    def compose(self) -> ComposeResult:
        """Yield the widgets: head, machine, words about an empty table, table, filter, keys."""
        yield Static(id="head")
        with VerticalScroll(id="machine-frame"):
            yield Static(id="machine")
        yield Static(id="nothing")
        yield DataTable(cursor_type="row", zebra_stripes=False, cell_padding=1)
        yield Input(id="filter", placeholder="words that lines must have; Esc shows all", compact=True)
        yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        """Take the first look, and start the timer for further looks."""
        self.query_one(DataTable).focus()
        self.action_again()
        self.set_interval(self._interval, self._look_again)

    def on_resize(self, _event: Resize) -> None:
        """Draw again for the new size."""
        self.call_after_refresh(self._draw)

    async def action_quit(self) -> None:
        """Quit at once.

        Leaves the connections first, because Textual waits for threads which may wait for an answer.
        """
        self._connections.leave()
        self.exit()

    # Looking.

    def _look_again(self) -> None:
        if not self._looking:
            self._look(at_once=False)
        elif time.monotonic() > self._began + _SLOW:
            self.query_one("#head", Static).update(Text("the service does not answer; waiting", style="bold red"))

    def action_again(self) -> None:
        """Look at once."""
        if not self._looking:
            self._look(at_once=True)

    def _look(self, *, at_once: bool) -> None:
        self._looking = True
        self._began = time.monotonic()
        self._look_in_thread(at_once=at_once)

    @work(thread=True)
    def _look_in_thread(self, *, at_once: bool) -> None:
        view = self._watcher.look(at_once=at_once)
        now = figures.read()
        memory = f"{byte_words(now.memory_available)} of {byte_words(now.memory)} free"
        busy = " ".join(f"{percent}%" for percent in self._gpus.read())
        gpus = f"  GPU {busy}" if busy else ""
        self.post_message(self.Seen(view, f"load {now.load[0]:.2f}{gpus}  {memory}"))

    def on_top_seen(self, seen: Seen) -> None:
        """Show the view of the finished look."""
        self._looking = False
        self._view = seen.view
        clock = time.strftime("%H:%M:%S", time.localtime(seen.view.at))
        counts = f"{seen.view.running} running, {seen.view.waiting} waiting"
        away = f"{seen.view.away}  " if seen.view.away else ""
        self._head = f"{printable(seen.view.node)} {clock}  {away}{counts}  {seen.now}"
        self._draw()
        self.seen += 1

    # Drawing.

    def _draw(self) -> None:
        view = self._view
        if view is None or not self.query("#head"):  # a look may end when the user has left
            return
        head = Text(self._head, no_wrap=True, overflow="ellipsis")
        if view.problem:
            head = Text(f"{view.problem}; what it said last:", style="bold red")
        self.query_one("#head", Static).update(head)
        wide = max(self.size.width - 3, 20)
        self.query_one("#machine", Static).update(
            picture.draw(self._topology, view.occupation, wide, eight=self._eight)
        )
        self._rows = columns.arranged(view.rows, self._sorted, self._words, turned=self._turned)
        nothing = self.query_one("#nothing", Static)
        nothing.update("no line has these words; Esc shows all" if view.rows else _NOTHING)
        nothing.display = not self._rows
        self._fill(self.query_one(DataTable), view)

    def _fill(self, table: DataTable[Text], view: View) -> None:
        """Write only the changed cells, and keep the cursor on the same row."""
        shown = columns.fitting(self._rows, self.size.width - 1, self._sorted)
        keys = [row.name for row in self._rows]
        if shown != self._shown or [str(key.value) for key in table.rows] != keys or not table.columns:
            selected = self._selected()
            where = table.cursor_row
            table.clear(columns=True)
            for column, width in shown:
                greatest_first = (column.title in columns.DESCENDING) != self._turned
                mark = ("v" if greatest_first else "^") if column.title == self._sorted else ""
                title = f"{mark}{column.title}"
                label = Text(title.rjust(width) if column.right else title, style="bold underline" if mark else "bold")
                table.add_column(label, key=column.title, width=width)
            for row in self._rows:
                table.add_row(*self._cells(row, view, shown), key=row.name)
            self._shown = shown
            if self._rows:
                at = keys.index(selected.name) if selected and selected.name in keys else where
                table.move_cursor(row=min(at, len(keys) - 1))
            return
        for row in self._rows:
            for (column, _), cell in zip(shown, self._cells(row, view, shown), strict=True):
                if table.get_cell(row.name, column.title) != cell:
                    table.update_cell(row.name, column.title, cell)

    def _cells(self, row: Row, view: View, shown: list[tuple[columns.Column, int]]) -> list[Text]:
        cells = []
        for column, width in shown:
            words = column.cell(row)
            if not column.title:
                cells.append(
                    Text(words, style=picture.style_of(words, view.occupation, eight=self._eight) if words else "")
                )
                continue
            words = words if len(words) <= width else f"{words[: width - 1]}+"
            style = "dim" if row.waits else "yellow" if row.state == SUSPENDED and column.title == "STATE" else ""
            cells.append(Text(words.rjust(width) if column.right else words, style=style))
        return cells

    def _selected(self) -> Row | None:
        table = self.query_one(DataTable)
        if not table.row_count:
            return None
        key = table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value
        return next((row for row in self._view.rows if row.name == key), None) if self._view else None

    # Keys.

    def action_sort(self, way: int) -> None:
        """Sort by the next column, or the column before."""
        at = _SORTED.index(self._sorted)
        self._sorted = _SORTED[(at + way) % len(_SORTED)]
        self._turned = False
        self._redraw()

    def action_turn(self) -> None:
        """Reverse the order."""
        self._turned = not self._turned
        self._redraw()

    def _redraw(self) -> None:
        self._shown = []
        self._draw()

    def action_filter(self) -> None:
        """Show the filter field and put the cursor there."""
        field = self.query_one("#filter", Input)
        field.display = True
        field.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Show only lines with the typed words."""
        self._words = event.value
        self._redraw()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Keep the filter, and return the keys to the table."""
        event.input.display = bool(self._words)
        self.query_one(DataTable).focus()

    def action_unfilter(self) -> None:
        """Show all lines."""
        field = self.query_one("#filter", Input)
        field.value = ""
        field.display = False
        self.query_one(DataTable).focus()

    def action_machine(self) -> None:
        """Hide or show the machine."""
        frame = self.query_one("#machine-frame")
        frame.display = not frame.display

    def action_help(self) -> None:
        """Show the meaning of the keys."""
        self.push_screen(Reading("keys", _HELP))

    def on_data_table_row_selected(self, _event: DataTable.RowSelected) -> None:
        """Show the output on Enter."""
        self.action_output()

    def action_output(self) -> None:
        """Show the output of the selected step, or why the selected job waits."""
        row = self._selected()
        if row is not None and row.is_step:
            self.push_screen(Output(self._connect, row))
        elif row is not None:
            self.action_explain()

    def action_explain(self) -> None:
        """Show why the selected job waits, or the layout of the selected step."""
        row = self._selected()
        if row is not None:
            self._explain(row, self.size.width - 12)

    @work(thread=True)
    def _explain(self, row: Row, width: int) -> None:
        try:
            self.post_message(self.Explained(row.name, service.explain(self._connect, row, width)))
        except Failed as failed:
            self.post_message(self.Done(str(failed), failed=True))

    def on_top_explained(self, explained: Explained) -> None:
        """Show the explanation in a dialog."""
        self.push_screen(Reading(f"explain {explained.title}", explained.lines))

    def action_signal(self) -> None:
        """Ask for a signal and send the signal to the selected step; for a waiting job, offer to cancel."""
        row = self._selected()
        if row is None:
            return
        if row.is_step:
            title = f"send step {row.name} of {row.user}"
            choices = [(name, f"{name:5} {_SIGNALS[name]}") for name in service.SIGNALS]
        else:
            title = f"job {row.name} of {row.user}"
            choices = [("", "leave it"), ("cancel", f"cancel job {row.name}")]

        def act(chosen: str | None) -> None:
            if chosen and row.is_step:
                self._ask(lambda: service.send(self._connect, row, chosen))
            elif chosen:
                self._ask(lambda: service.cancel(self._connect, row))

        self.push_screen(Choice(title, choices), act)

    def action_suspend(self) -> None:
        """Suspend or resume the selected step."""
        row = self._selected()
        if row is not None:
            self._ask(lambda: service.suspend_or_resume(self._connect, row))

    @work(thread=True)
    def _ask(self, asked: Callable[[], str]) -> None:
        try:
            self.post_message(self.Done(asked()))
        except Failed as failed:
            self.post_message(self.Done(str(failed), failed=True))

    def on_top_done(self, done: Done) -> None:
        """Show the result, and look again."""
        self.notify(printable(done.words), severity="error" if done.failed else "information", markup=False)
        self.action_again()
