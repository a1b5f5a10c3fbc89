# make run | demo | test | long | quick | check | notebooks | results | bench | gpu | docs | site | format.  ARGS="env.size=7 seed=1"
# reaches all stages; without ARGS, make run runs the default recipe: A2C histories, distillation, trials, evaluation.
PYTHON ?= python3
ARGS ?=
BIN := .venv/bin
# A module is compiled when it is first imported, and that is kept: pip would compile those that nobody imports too, and
# processes that keep nothing compile all that they import, each of them anew.
INSTALL := $(BIN)/python -m pip install --quiet --no-compile
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run demo test long quick check notebooks results bench gpu docs site format

run: .venv/run.stamp
	$(BIN)/python -m src.pipeline $(ARGS)

demo:
	$(PYTHON) src/icrl/extensions/demo/page.py examples/demo/checkpoint.js build/demo

test: .venv/dev.stamp
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not long" tests --numprocesses 3 --dist loadfile --no-loadscope-reorder

long: .venv/long.stamp
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m long tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/extensions/demo tests/extensions/scaling/test_train_shards.py tests/extensions/scaling/test_launch.py

quick: .venv/dev.stamp
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m quick --numprocesses 2 --dist loadfile tests

check: .venv/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyrefly check
	$(BIN)/python -m pytest -q tests/test_layers.py
	$(BIN)/nbstripout --verify notebooks/*.ipynb

notebooks: .venv/dev.stamp
	root=$$(mktemp -d) && trap 'rm -rf "$$root"' EXIT INT TERM && \
	OMP_NUM_THREADS=1 ICRL_OVERRIDES="experiment=tiny trainer.num_iterations=60 finetune.num_iterations=4 evaluation.num_episodes=4 root=$$root" $(BIN)/python -m pytest -q -x -p nbmake --nbmake --nbmake-timeout=300 notebooks

results: .venv/dev.stamp
	$(BIN)/python -m benchmarks.extensions.studies.learning

bench: .venv/bench.stamp
	$(BIN)/python -m benchmarks.jax_source
	$(BIN)/python -m benchmarks.jax_source --check
	$(BIN)/python -m benchmarks.sources
	$(BIN)/python -m benchmarks.extensions.from_gymnasium.processes
	$(BIN)/python -m benchmarks.training
	$(BIN)/python -m benchmarks.large_store
	$(BIN)/python -m benchmarks.extensions.seeds.stacked commands
	$(BIN)/python -m benchmarks.extensions.scaling.unit_costs
	$(BIN)/python -m benchmarks.extensions.scaling.thousand_gpus
	$(BIN)/python -m benchmarks.costs
	$(BIN)/python -m benchmarks.recipe
	$(BIN)/python -m benchmarks.extensions.cpu_attention.caches
	$(BIN)/python -m benchmarks.extensions.cpu_attention.long_windows
	$(BIN)/python -m benchmarks.freed_memory
	$(BIN)/python -m benchmarks.extensions.recurrent.trunks
	$(BIN)/python -m benchmarks.extensions.offline_rl.offline
	$(BIN)/python -m benchmarks.hugging_face
	$(BIN)/python -m benchmarks.extensions.point_game.games
	$(BIN)/python -m benchmarks.extensions.point_game.players
	$(BIN)/python -m benchmarks.extensions.point_game.league
	$(BIN)/python -m benchmarks.page

gpu: .venv/dev.stamp
	$(BIN)/python -m benchmarks.gpu

docs: .venv/dev.stamp
	$(BIN)/python docs/options_page.py > docs/settings.md
	$(BIN)/python docs/library_page.py > docs/api.md

site: .venv/site.stamp
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

format: .venv/dev.stamp
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.venv/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, this is " + sys.version)'
	$(PYTHON) -m venv .venv

.venv/run.stamp: .venv/bin/python requirements.txt pyproject.toml
	$(INSTALL) --requirement requirements.txt
	$(INSTALL) --no-deps --editable .
	touch $@

.venv/dev.stamp: .venv/run.stamp requirements-dev.txt
	$(INSTALL) --requirement requirements-dev.txt
	touch $@

.venv/long.stamp: .venv/dev.stamp
	$(INSTALL) --editable ".[demo,dask,submitit]"
	touch $@

.venv/site.stamp: .venv/bin/python docs/requirements.txt
	$(INSTALL) --requirement docs/requirements.txt
	touch $@

.venv/bench.stamp: .venv/dev.stamp benchmarks/requirements.txt
	$(INSTALL) --requirement benchmarks/requirements.txt
	touch $@
