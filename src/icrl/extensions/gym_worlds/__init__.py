"""Extension: MuJoCo (`locomotion`), Meta-World and MiniGrid with hidden tasks, as worlds for `from_gymnasium`.
Each needs its package."""

import gymnasium

NEEDS = ("from_gymnasium",)

for _name in ("HalfCheetahVel", "AntDir"):
    gymnasium.register(f"icrl/{_name}-v0", f"{__name__}.locomotion:{_name}", max_episode_steps=200)
for _name in ("reach-v3", "push-v3", "pick-place-v3"):
    _ml1 = {"max_episode_steps": 500, "kwargs": {"env_name": _name}}
    gymnasium.register(f"icrl/ML1-{_name}", f"{__name__}.meta_world:ML1", **_ml1)
