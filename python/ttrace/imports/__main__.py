"""`python3 -m ttrace.imports FORMAT PATH... --output TRACE`: what `ttrace import` runs."""

from __future__ import annotations

import argparse
import importlib
import json
import signal
import sys
from pathlib import Path

_COULD_NOT = 2


def _arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python3 -m ttrace.imports", description=__doc__)
    parser.add_argument("format", choices=("sglang", "msprobe", "safetensors", "npy", "dcp"))
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("-o", "--output", required=True)
    parser.add_argument("--step", type=int)
    parser.add_argument("--kind")
    parser.add_argument("--dims", type=Path)
    parser.add_argument("--axes")
    parser.add_argument("--precision")
    parser.add_argument("--result", type=Path, help="JSON file for the outcome; default: it is printed")
    return parser.parse_args(words)


def _axes(text: str | None) -> list[tuple[str, int]]:
    from .foreign import ForeignFileError

    axes = []
    for word in text.split(",") if text else []:
        name, _, size = word.partition("=")
        if not name.isidentifier() or not size.isdigit() or int(size) < 1:
            raise ForeignFileError(
                f"--axes holds '{word}', which is no axis; write it like dp=2,tp=4, the slowest first"
            )
        axes.append((name, int(size)))
    return axes


def run(words: list[str]) -> dict[str, object]:
    """Imports what the words of a command line say. Returns what was written, or `error` with a sentence."""
    import ttrace  # noqa: F401  loads the library

    from .foreign import ForeignFileError
    from .writing import Options, sentence_of, write

    given = _arguments(words)
    try:
        options = Options(
            given.output, given.step, given.kind, _axes(given.axes), given.dims, given.precision
        )
        source = importlib.import_module(f".{given.format}", __package__).Source(given.paths, options)
        return vars(write(source, given.format, options))
    except ForeignFileError as error:
        return {"error": str(error)}
    except OSError as error:
        return {"error": f"{error.filename} cannot be read: {error.strerror}"}
    except RuntimeError as error:  # of the library
        return {"error": sentence_of(error)}


def main() -> int:
    # So that nothing half-written stays.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    words = sys.argv[1:]
    result = run(words)
    text = json.dumps(result)
    if file := _arguments(words).result:
        file.write_text(text, encoding="utf-8")
    else:
        print(text)
    return _COULD_NOT if "error" in result else 0


if __name__ == "__main__":
    sys.exit(main())
