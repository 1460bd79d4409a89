# SPDX-License-Identifier: Apache-2.0
"""The event loop of a context, and the signal that interrupts a cell.

Every cell finds a running loop, as in a notebook: asyncio.create_task() works in a cell without
`await`, and what it started makes progress in later cells and between them (wait_readable()).
For a cell without `await` the loop is announced as running but does not run; so
asyncio.run() and run_until_complete() work in such a cell as well, where a notebook refuses them:
while another loop runs inside a cell, the announcement is taken back (leaving()).

An interrupt (SIGINT) is a KeyboardInterrupt where the user's code is at work. Where the loop
only waits, the cell's own task is canceled instead, so that its `finally` blocks run and nothing of the
loop is left half done. Tasks that an interrupted cell has started are canceled with it: they must
not print into the cell of somebody else.
"""

import asyncio
import functools
import signal

RUN_ONCE = asyncio.BaseEventLoop._run_once.__code__
RUN_HANDLE = asyncio.Handle._run.__code__


def leaving(function):
    """Make @function, which runs a loop, work where a loop is announced or running."""

    @functools.wraps(function)
    def outside(*args, **keywords):
        here = asyncio._get_running_loop()
        if here is None:
            return function(*args, **keywords)
        task = asyncio.current_task(here)
        if task is not None:
            asyncio.tasks._leave_task(here, task)
        asyncio._set_running_loop(None)
        try:
            return function(*args, **keywords)
        finally:
            asyncio._set_running_loop(here)
            if task is not None:
                asyncio.tasks._enter_task(here, task)

    return outside


class CellLoop(asyncio.SelectorEventLoop):
    def close(self):
        """Scripts end with loop.close(); this one is the interpreter's and stays."""

    def idle(self):
        """Is there nothing that could happen by itself?"""
        return not (
            self._ready
            or any(not timer.cancelled() for timer in self._scheduled)
            or len(self._selector.get_map()) > 1  # its own waker is one
            or asyncio.all_tasks(self)
        )


def ignore_interrupt(_signal, _frame):
    """Between cells. Not SIG_IGN, which programs started in the background would inherit."""


class Cells:
    """What the cells of one interpreter share: the loop, and who is interrupted."""

    def __init__(self):
        self.loop = CellLoop()
        self.main = None  # the task of a cell with `await`
        self.interrupted = False
        signal.signal(signal.SIGINT, ignore_interrupt)
        for owner, name in (
            (asyncio.BaseEventLoop, "run_forever"),
            (asyncio.BaseEventLoop, "run_until_complete"),
            (asyncio.Runner, "run") if hasattr(asyncio, "Runner") else (asyncio, "run"),
        ):
            setattr(owner, name, leaving(getattr(owner, name)))
        asyncio.run = asyncio.runners.run = leaving(asyncio.run)

    # ---- one cell ----

    def __enter__(self):
        """A cell begins. (Make @interruptible its last step and its first to end.)"""
        self.interrupted = False
        self.before = asyncio.all_tasks(self.loop)
        asyncio.set_event_loop(self.loop)
        asyncio._set_running_loop(self.loop)
        return self

    def __exit__(self, *_raised):
        asyncio._set_running_loop(None)
        if self.interrupted:
            self.cancel_tasks()
        self.before = None

    def cancel_tasks(self):
        """Cancel what the cell has started, and wait for its end: the agent bounds this."""
        while True:
            left = asyncio.all_tasks(self.loop) - self.before
            if not left:
                return
            for task in left:
                task.cancel()
            self.turn(asyncio.wait(left))

    def turn(self, awaitable):
        """Run the loop until @awaitable is done, whatever other tasks raise meanwhile."""
        future = asyncio.ensure_future(awaitable, loop=self.loop)
        while True:
            try:
                return self.loop.run_until_complete(future)
            except (KeyboardInterrupt, SystemExit) as error:
                # of another task: it has ended with it. An interrupt is meant for the cell.
                if future.done():
                    raise
                if isinstance(error, KeyboardInterrupt):
                    future.cancel()

    def run_cell(self, coroutine):
        """Run the coroutine of a cell with `await`: IPython's loop runner."""
        self.main = self.loop.create_task(coroutine)
        try:
            return self.turn(self.main)
        finally:
            self.main = None

    def interrupt(self, _signal, frame):
        """SIGINT's handler while a cell runs."""
        self.interrupted = True
        while frame is not None and frame.f_code is not RUN_HANDLE:
            if frame.f_code is RUN_ONCE:
                # The loop waits, or goes from one task to the next.
                if self.main is None or frame.f_locals.get("self") is not self.loop:
                    break
                if not self.main.done():
                    self.main.cancel()
                    self.loop.call_soon_threadsafe(lambda: None)  # wakes it
                    return
                break
            frame = frame.f_back
        raise KeyboardInterrupt

    # ---- between cells ----

    def wait_readable(self, fd):
        """Return when @fd can be read. Meanwhile tasks make progress. Returns at once where there
        are none: whoever reads then waits by itself."""
        if self.loop.idle():
            return
        ready = []

        def stop():
            ready.append(True)
            self.loop.stop()

        self.loop.add_reader(fd, stop)
        try:
            while not ready:
                try:
                    self.loop.run_forever()
                except (KeyboardInterrupt, SystemExit):
                    pass  # of a task, which has ended with it
        finally:
            self.loop.remove_reader(fd)
