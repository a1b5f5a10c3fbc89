"""Maps of success on tasks, and what is printed and outlined on those of a room of 3 x 3."""

from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from icrl.app.compose import load_config
from icrl.envs import make_env
from icrl.plots.figures import success_figure
from icrl.plots.style import HELD_OUT_COLOR


def world(*options: str):
    return make_env(load_config(options).env)


def figure_of(env, train, held_out=None, development=None):
    nothing = train[0][:0], []
    return success_figure(env, train, held_out or nothing, development or nothing, title="success")


def printed(figure) -> dict[int, str]:
    """Values by cell of a room of 3 x 3."""
    places = {text.get_text(): text.get_position() for text in figure.axes[0].texts}
    assert len(places) == len(figure.axes[0].texts)
    return {int(y) * 3 + int(x): text for text, (x, y) in places.items()}


def outlined(figure, style: str = "-") -> set[int]:
    patches = [patch for patch in figure.axes[0].patches if isinstance(patch, Rectangle)]
    assert {to_hex(patch.get_edgecolor()).upper() for patch in patches} <= {HELD_OUT_COLOR}
    return {int(patch.get_y()) * 3 + int(patch.get_x()) for patch in patches if patch.get_linestyle() == style}
