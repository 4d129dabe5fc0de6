"""Reads a rank's file of a trace as docs/trace_format.md describes it, with h5py and numpy alone.

python read_rank_file.py FILE.h5 OUT.npz: writes every record's bytes under its id, and as `about` what else the file says.
"""

import json
import sys

import h5py
import numpy


def words_of(row: numpy.void, name: str) -> str:
    return row[name].decode()


def placement_of(text: str) -> dict:
    """The words of the dimensions and the options, such as `scale=0x1p-1`."""
    if text == "-":
        return {"logical": [], "segments": [], "options": {}}
    words = text.split(" ")
    options = dict(word.split("=") for word in words if "=" in word)
    logical, segments = [], []
    for word in (word for word in words if "=" not in word):
        sizes, _, parts = word.partition(":")
        logical.append(int(sizes.split("/")[0]))
        # A size alone: every local index is the logical one.
        own = [[int(number) for number in part.split("+")] for part in parts.split(",")] if parts else []
        segments.append(own if ":" in word else [[0, 0, logical[-1]]])
    return {"logical": logical, "segments": segments, "options": options}


def main(path: str, out: str) -> None:
    with h5py.File(path, "r") as file, open(path, "rb") as raw:

        def bytes_at(dataset: str, offset: int, count: int) -> bytes:
            """Datasets are contiguous, so that a tensor is a range of the file's bytes."""
            raw.seek(file[dataset].id.get_offset() + offset)
            return raw.read(count)

        def text_of(cell: str) -> str:
            if not cell.startswith("@"):
                return cell
            dataset, offset, count = cell[1:].rsplit("+", 2)
            return bytes_at(dataset, int(offset), int(count)).decode()

        attributes = file.attrs
        assert attributes["ttrace_format"] == 1
        records = {}
        tensors = {}
        for row in file["index"]:
            name, dataset = words_of(row, "id"), words_of(row, "dataset")
            shape = words_of(row, "shape")
            own = b"" if dataset == "-" else bytes_at(dataset, int(row["offset"]), int(row["bytes"]))
            tensors[name] = numpy.frombuffer(own, numpy.uint8)
            records[name] = {
                "dtype": words_of(row, "dtype"),
                "shape": [] if shape == "-" else [int(extent) for extent in shape.split("x")],
                "placement": placement_of(text_of(words_of(row, "placement"))),
                "order": int(row["order"]),
                "time": int(row["time"]) if "time" in file["index"].dtype.names else None,
                "norm": float(row["norm"]),
                "dataset": dataset,
            }
            if dataset == name.replace("/", "|"):  # one of its own, with type and shape
                assert list(file[dataset].shape) == records[name]["shape"]
        assert len(records) == attributes["records"]
        about = {
            "rank": int(attributes["rank"]),
            "world_size": int(attributes["world_size"]),
            "layout": json.loads(attributes["layout"]),
            "notes": json.loads(attributes["notes"]),
            "began": int(attributes["began"]) if "began" in attributes else None,
            "edges": [[words_of(row, "consumer"), words_of(row, "producer")] for row in file.get("edges", [])],
            "code": {words_of(row, "path"): words_of(row, "source") or words_of(row, "call") for row in file.get("code", [])},
            "records": records,
        }
    numpy.savez(out, about=json.dumps(about), **tensors)


main(*sys.argv[1:])
