"""A traced program that writes HDF5 files of its own by h5py while TTrace writes its traces.

python beside_h5py.py h5py-first|ttrace-first FILE
"""

import sys

if sys.argv[1] == "h5py-first":
    import h5py
    import ttrace
else:
    import ttrace
    import h5py  # isort: skip

import numpy
import torch
from torch import nn


def libraries_of_hdf5() -> list[str]:
    """Those that are mapped into this process as files of their own."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        paths = {line.split(maxsplit=5)[5].strip() for line in maps if "hdf5" in line}
    return sorted(path.rsplit("/", 1)[1] for path in paths)


DTYPE = {"f32": torch.float32, "f64": torch.float64}[ttrace.precision("f32")]
torch.manual_seed(1)
model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1)).to(DTYPE)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
tracer = ttrace.attach(model, optimizer=optimizer)
losses = []
with h5py.File(sys.argv[2], "w") as file:
    for step in range(2):
        with tracer.step(step):
            inputs = numpy.random.default_rng(step).standard_normal((4, 8)).astype("float32")
            loss = model(torch.from_numpy(inputs).to(DTYPE)).square().mean()
            loss.backward()
            file.create_dataset(f"step{step}/inputs", data=inputs, chunks=True, compression="gzip")
            optimizer.step()
            optimizer.zero_grad()
            file.create_dataset(f"step{step}/loss", data=loss.item())
            losses.append(loss.item())

with h5py.File(sys.argv[2]) as file:
    for step, loss in enumerate(losses):
        inputs = numpy.random.default_rng(step).standard_normal((4, 8)).astype("float32")
        assert (file[f"step{step}/inputs"][:] == inputs).all()
        assert file[f"step{step}/loss"][()] == loss
print(f"h5py {h5py.__version__} with HDF5 {h5py.version.hdf5_version}; mapped: {libraries_of_hdf5()}")
