"""A world of one's own as a Gymnasium class: ring roads with doors, one of which is a shop.

python -m src.pipeline env=gymnasium env.id=examples/my_world.py:Street env.max_episode_steps=20 env.width=0 \
  'env.tasks=[{shop: 1}, {shop: 2}, {shop: 3}, {shop: 4}, {shop: 5}, {shop: 6}, {shop: 7}, {shop: 8}]' \
  source=q_learning
"""
