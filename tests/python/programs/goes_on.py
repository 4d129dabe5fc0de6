"""Trains a linear layer. It notes in FILE when it starts, and when it has imported ttrace: which process, of which parent, in which
pass. What else it does before the import is what its second argument says.

    python goes_on.py FILE [nothing | thread | moves | fails] [DIVISOR]
"""

from __future__ import annotations

import os
import sys
import threading

import torch

FILE, DEED, DIVISOR = sys.argv[1], *(sys.argv[2:3] or ["nothing"]), *(sys.argv[3:4] or ["1"])
STARTED = os.getpid()


def note(*words: object) -> None:
    with open(FILE, "a", encoding="utf-8") as file:
        print(*words, file=file)


note("start", STARTED)
released = threading.Event()
if DEED == "thread":
    threading.Thread(target=released.wait).start()
if DEED == "moves":
    os.chdir("/")
    os.environ["OF_THE_PROGRAM"] = "1"

import ttrace  # noqa: E402  behind what it is about

note("pass", os.environ.get("TTRACE_PASS"), os.getpid(), os.getppid(), os.getcwd(), os.environ.get("OF_THE_PROGRAM"))
print("this is the log of", os.environ.get("TTRACE_PASS"), flush=True)
if DEED == "fails" and os.getpid() != STARTED:
    sys.exit("this program does not like to go on in another process")


def main() -> None:
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    model = model.to(ttrace.dtype(torch.float32))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    tracer = ttrace.attach(model, optimizer=optimizer)
    with tracer.step(0):
        rows = torch.randn(4, 8, generator=torch.Generator().manual_seed(2)).to(model[0].weight.dtype)
        (model(rows).pow(2).mean() / float(DIVISOR)).backward()
        optimizer.step()


main()
released.set()
