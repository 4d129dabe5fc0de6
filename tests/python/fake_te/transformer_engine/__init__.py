"""Stands for TransformerEngine where there is no GPU: its names, arguments, attributes and communication.

It has what megatron-core's default layer spec takes, and torch does the maths. Only interfaces are imitated:
the numbers of real kernels are others. FP8 is emulated with torch's float8 types: one scale per tensor, which
delayed scaling takes from a history of largest magnitudes. Two variables choose what the tests need:

    FAKE_TE_COMMUNICATION=hidden   sums over ranks are made of messages, so that no reduction of c10d shows them
    FAKE_TE_MATHS=opaque           products are numpy's, so that torch's dispatcher sees none of them
"""

from . import common, pytorch

__all__ = ["common", "pytorch"]
__version__ = "2.6.0"
