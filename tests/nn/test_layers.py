"""Hidden layers as they are written: what comes of them, and every refusal with its place."""

import pytest

from icrl.contracts import ConfigError
from icrl.nn.layers import Layer, read_net_arch


def test_layers_repeat_and_nest_in_order() -> None:
    written = [
        {"width": 8, "normalization": "layer"},
        {
            "net_arch": [{"width": 4}, {"width": 3, "residual": True, "repeat": 2, "activation": "tanh"}],
            "repeat": 2,
        },
        {"net_arch": []},
    ]
    block = [Layer(4), *[Layer(3, residual=True, activation="tanh")] * 2]
    assert read_net_arch("net", written) == [Layer(8, normalization="layer"), *block, *block]
    assert read_net_arch("net", []) == []


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ({"width": 8}, "net={'width': 8}: must be a list of layers"),
        (8, "net=8: must be a list of layers"),
        ([8], "net[0]=8: must be a mapping such as {width: 64}"),
        ([{"width": 1}, {"width": 0}], "net[1].width=0: must be an int >= 1 and <= 16384"),
        ([{"width": 1.5}], "net[0].width=1.5: must be an int >= 1 and <= 16384"),
        ([{"width": True}], "net[0].width=True: must be an int >= 1 and <= 16384"),
        ([{"width": "8"}], "net[0].width=8: must be an int >= 1 and <= 16384"),
        ([{"width": 8, "repeat": 0}], "net[0].repeat=0: must be an int >= 1 and <= 16384"),
        ([{"width": 8, "repeat": None}], "net[0].repeat=None: must be an int >= 1 and <= 16384"),
        ([{"width": 8, "normalization": "batc"}], "net[0].normalization=batc: must be one of none, layer, batch"),
        ([{"width": 8, "activation": None}], "net[0].activation=None: must be one of relu, tanh, gelu"),
        ([{"width": 8, "residual": 1}], "net[0].residual=1: must be true or false"),
        ([{"residual": True}], "net[0].width is missing: a layer is width, normalization, activation, residual"),
        (
            [{"width": 8, "widht": 8}],
            "net[0].widht: unknown key, must be one of width, normalization, activation, residual, repeat, net_arch",
        ),
        (
            [{"net_arch": [{"width": 1, "repeat": 16384}], "repeat": 16384}],
            "net[0].net_arch[0]={'width': 1, 'repeat': 16384}: makes more than 1000 layers, the most there may be",
        ),
        (
            [{"width": 1, "repeat": 600}] * 2,
            "net[1]={'width': 1, 'repeat': 600}: makes more than 1000 layers, the most there may be",
        ),
        ([{"net_arch": [], "width": 8}], "net[0].width: unknown key, must be one of net_arch, repeat"),
        ([{"net_arch": [{"width": -1}], "repeat": 2}], "net[0].net_arch[0].width=-1: must be an int >= 1 and <= 16384"),
    ],
)
def test_what_is_no_layer_is_refused_at_its_place(written: object, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_net_arch("net", written)
    assert str(refused.value) == message
