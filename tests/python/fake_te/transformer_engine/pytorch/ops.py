"""Names in annotations of megatron-core's TEFusedMLP, which the default layer spec does not use."""


class Sequential:
    pass


class FusibleOperation:
    pass
