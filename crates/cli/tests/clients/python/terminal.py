"""Runs a program in a terminal of its own and takes steps there: a JSON list of
["expect", text], ["type", text], ["size", rows, columns] and ["hang up"]. Prints the exit code."""

import fcntl
import json
import os
import pty
import select
import signal
import struct
import sys
import termios
import time

PATIENCE = 30


def main():
    steps, words = json.loads(sys.argv[1]), sys.argv[2:]
    process, terminal = pty.fork()
    if process == 0:
        os.execvp(words[0], words)
    shown = ""
    for name, *values in steps:
        if name == "expect":
            end = time.monotonic() + PATIENCE
            while values[0] not in shown:
                if not select.select([terminal], [], [], max(0, end - time.monotonic()))[0]:
                    sys.exit(f"not shown: {values[0]!r}\n{shown}")
                try:
                    shown += os.read(terminal, 4096).decode(errors="replace")
                except OSError:
                    sys.exit(f"ended without {values[0]!r}\n{shown}")
            shown = shown[shown.index(values[0]) + len(values[0]) :]
        elif name == "type":
            os.write(terminal, values[0].encode())
        elif name == "size":
            size = struct.pack("HHHH", values[0], values[1], 0, 0)
            fcntl.ioctl(terminal, termios.TIOCSWINSZ, size)
        elif name == "hang up":
            os.kill(process, signal.SIGKILL)
    while True:
        try:
            if not os.read(terminal, 4096):
                break
        except OSError:
            break
    print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))


main()
